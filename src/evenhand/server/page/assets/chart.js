// Mean scores over time, before and after, as inline SVG.

import { draw, make } from "./dom.js";
import { clock, score } from "./parts.js";

const HEIGHT = 190;
const EDGE = { left: 40, right: 8, top: 10, bottom: 24 };

/** A round number at or above `value`, for the end of the axis. */
const roundUp = (value) => {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((step) => step * size).find((end) => end >= value - 1e-9);
};

const latest = (values) => values.findLast((value) => value !== null);

/** The line as segments, so that a time without scores is a gap. */
const path = (values, x, y) => {
  let d = "";
  values.forEach((value, i) => {
    if (value === null) return;
    d += (i > 0 && values[i - 1] !== null ? "L" : "M") + x(i).toFixed(1) + " " + y(value).toFixed(1);
  });
  return d;
};

const axes = (width, top, y) => {
  const parts = [0, top / 2, top].map((value) => {
    const at = y(value).toFixed(1);
    const line = draw("path", { class: "grid", d: `M${EDGE.left} ${at}H${width - EDGE.right}` });
    const text = draw("text", { x: EDGE.left - 6, y: Number(at) + 4, class: "end" }, String(+value.toPrecision(3)));
    return [line, text];
  });
  return parts.flat();
};

const times = (now, window, x, steps) =>
  [0, Math.floor((steps - 1) / 2), steps - 1].map((i, place) => {
    const text = clock(now - (steps - 1 - i) * window.seconds).slice(0, window.seconds < 60 ? 8 : 5);
    return draw("text", { x: x(i), y: HEIGHT - 5, class: ["", "middle", "end"][place] }, text);
  });

const tips = (line, now, window, x, steps) => {
  const wide = x(1) - x(0);
  return line.n.flatMap((n, i) => {
    if (!n) return [];
    const when = clock(now - (steps - 1 - i) * window.seconds);
    const text = `${when}: ${score(line.before[i])} before, ${score(line.after[i])} after, n = ${n}`;
    const box = { class: "target", x: x(i) - wide / 2, y: EDGE.top, width: wide, height: HEIGHT - EDGE.top - EDGE.bottom };
    return [draw("rect", box, draw("title", {}, text))];
  });
};

/** Fill `place` with the chart of one evaluator; `line` is undefined if nothing was scored. */
export const drawScores = (place, name, line, limit, window, now) => {
  if (!line) {
    place.replaceChildren(make("p", "nothing", "Nothing was scored in this period."));
    return;
  }
  const steps = line.before.length;
  const width = Math.max(240, place.clientWidth);
  const known = [...line.before, ...line.after, limit ?? null].filter((value) => value !== null);
  const top = roundUp(Math.max(...known));
  const x = (i) => EDGE.left + 6 + (i / (steps - 1)) * (width - EDGE.left - EDGE.right - 12);
  const y = (value) => EDGE.top + (1 - Math.max(0, value) / top) * (HEIGHT - EDGE.top - EDGE.bottom);
  const label = `Mean ${name} over the last ${window.name}: latest ${score(latest(line.before))} for first answers, ` +
    `${score(latest(line.after))} for what clients got`;
  const svg = draw("svg", { width, height: HEIGHT, role: "img", "aria-label": label }, ...axes(width, top, y));
  svg.append(...times(now, window, x, steps));
  if (limit !== undefined) svg.append(draw("path", { class: "limit", d: `M${EDGE.left} ${y(limit)}H${width - EDGE.right}` }));
  for (const side of ["before", "after"]) {
    svg.append(draw("path", { class: "line " + side, d: path(line[side], x, y) }));
    line[side].forEach((value, i) => {
      if (value !== null) svg.append(draw("circle", { class: "point " + side, cx: x(i), cy: y(value), r: side === "before" ? 3.6 : 2.8 }));
    });
  }
  svg.append(...tips(line, now, window, x, steps));
  place.replaceChildren(svg);
};
