// The owner's page: where the study stands, asked for again every few seconds.

import { byId, draw, make, plural } from "./dom.js";
import { Refused, ask, showProblem, startWithLink } from "./parts.js";

const EVERY = 3000;
const DASH = "–";
let wanted = "";
let drawn = "";

const digits = (value, places = 2) => (value === null ? DASH : value.toFixed(places).replace("-", "−"));
const ago = (seconds) => (seconds < 90 ? "just now" : seconds < 5400 ? Math.round(seconds / 60) + " min ago" : seconds < 129600 ? Math.round(seconds / 3600) + " h ago" : Math.round(seconds / 86400) + " days ago");

const estimate = ({ estimate: value, low, high, n }, noun) => [
  digits(value),
  make("small", {}, (low === null || value === null ? "" : digits(low) + " to " + digits(high) + ", ") + plural(n, noun)),
];

const table = (caption, columns, rows, id) => {
  const head = make("thead", {}, make("tr", {}, columns.map((name) => make("th", { scope: "col" }, name))));
  const body = make("tbody", {}, rows.map(([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), rest.map((cell) => make("td", {}, cell)))));
  const scroll = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, make("table", { class: "figures", id }, head, body));
  return make("div", {}, make("p", { class: "caption" }, caption), scroll);
};

const course = (points) => {
  if (points.length < 2) return DASH;
  const at = (value, place) => ((90 * place) / (points.length - 1)).toFixed(1) + " " + (22 - 20 * value).toFixed(1);
  const label = "Share in the same band over time: " + points.map((value) => Math.round(100 * value) + " %").join(", ");
  const line = draw("path", { d: "M" + points.map(at).join("L") });
  return draw("svg", { class: "course", width: 92, height: 24, role: "img", "aria-label": label }, draw("line", { x1: 0, y1: 22, x2: 90, y2: 22 }), draw("line", { x1: 0, y1: 2, x2: 90, y2: 2 }), line);
};

const change = ({ estimate: value, low, high }, factor, unit) => {
  if (value === null) return DASH;
  const shown = (number) => {
    const whole = Math.round(factor * number);
    return (whole > 0 ? "+" : whole < 0 ? "−" : "") + Math.abs(whole);
  };
  return [shown(value) + unit, low === null ? null : make("small", {}, shown(low) + " to " + shown(high))];
};

const isEarly = (verdict) => verdict.startsWith("too early");
const isDrift = (verdict) => !isEarly(verdict) && verdict !== "no drift seen";

const needs = ({ half_width, needed, more, beyond, questions }) => {
  if (half_width === null) return "no interval yet";
  if (needed === null) return "too early to say: " + plural(questions, "question");
  if (more === 0) return "reached";
  const outside = beyond ? make("small", {}, plural(beyond, "rating") + " beyond the plan: export more questions") : make("small", {}, "within the plan");
  return ["about " + plural(more, "more rating"), outside];
};

const summary = (study) => {
  const done = study.progress.reduce((sum, each) => sum + each.done, 0);
  const all = study.progress.reduce((sum, each) => sum + each.planned, 0);
  const drifting = [...new Set(study.drift.filter(({ verdict }) => isDrift(verdict)).map(({ rater }) => rater))];
  const early = study.drift.every(({ verdict }) => isEarly(verdict));
  const who = drifting.length ? "Look at " + drifting.join(", ") + ": ratings drift." : early ? "It is too early to see drift." : "No rater is seen to drift.";
  return done.toLocaleString("en") + " of " + plural(all, "rating") + " done. " + who;
};

const drawStudy = (study) => {
  // Tables that stay the same are left alone: who reads or scrolls one is not disturbed.
  const content = JSON.stringify({ ...study, token: "", now: Math.floor(study.now / 60) });
  if (content === drawn) return;
  drawn = content;
  const titles = Object.fromEntries(study.scales.map(({ short, title }) => [short, title]));
  const raters = study.progress.map((each) => [
    each.rater,
    [each.done.toLocaleString("en") + " of " + each.planned.toLocaleString("en"), make("progress", { max: Math.max(1, each.planned), value: each.done, "aria-label": each.rater })],
    String(each.cannot_tell),
    each.seconds === null ? DASH : Math.round(each.seconds) + " s",
    each.last === null ? "not started" : ago(study.now - each.last),
  ]);
  const agreement = study.agreement.map((each) => [titles[each.scale], estimate(each.fleiss, "answer"), estimate(each.alpha, "answer")]);
  const pairs = study.pairs.map(({ raters: [one, other], kappa }) => [one + " – " + other, ...study.scales.map(({ short }) => estimate(kappa[short], "answer"))]);
  const drift = study.drift.map((each) => [
    each.rater + ", " + titles[each.scale].toLowerCase(),
    make("span", { class: isDrift(each.verdict) ? "drifts" : null }, each.verdict),
    course(each.course),
    change(each.agreement, 100, " %-points"),
    change(each.shift, 1, " points"),
    each.n.toLocaleString("en"),
  ]);
  const precision = study.precision.map((each) => [
    titles[each.scale],
    study.arms.length > 1 ? each.arm + " against " + study.baseline : each.arm,
    each.half_width === null ? DASH : "± " + digits(each.half_width, 1),
    needs(each),
  ]);
  byId("sum").textContent = summary(study);
  byId("about").textContent = study.study + ": " + plural(study.questions, "question") + " × " + plural(study.arms.length, "arm") + " = " + plural(study.answers, "answer") + ", " + plural(study.progress.length, "rater") + ".";
  byId("figures").replaceChildren(
    make("h2", {}, "Raters"),
    table("Answers rated on all scales, and the median time of one", ["Rater", "Done", "Cannot tell", "Time", "Last rating"], raters, "raters"),
    make("h2", {}, "Agreement"),
    table("1 is full agreement, 0 is chance; 95 % limits over questions", ["Scale", "Fleiss’ kappa", "Krippendorff’s alpha"], agreement, "agreement"),
    pairs.length ? table("Cohen’s kappa of each pair of raters", ["Raters", ...study.scales.map(({ title }) => title)], pairs, "pairs") : "",
    make("h2", {}, "Drift"),
    table("Each rater against the others: the second half of their ratings compared with the first; limits corrected for all rows", ["Rater", "Verdict", "Agreement over time", "Change in agreement", "Change in level", "Ratings"], drift, "drift"),
    make("h2", {}, "Precision"),
    table("Half-width of the 95 % interval so far, and what ± " + study.wanted + " points needs", ["Scale", "Arm", "Now", "Needed"], precision, "precision"),
  );
};

const refresh = async () => {
  try {
    drawStudy(await ask("/api/study" + (wanted ? "?width=" + encodeURIComponent(wanted) : "")));
    byId("problem").hidden = true;
  } catch (error) {
    showProblem(error);
    if (error instanceof Refused && error.status === 401) throw error;
  }
};

startWithLink(async () => {
  await ask("/api/study");
  const input = make("input", { type: "number", id: "wanted", min: 0.1, max: 50, step: "any", value: 5, onchange: (event) => { wanted = event.target.value; refresh(); } });
  byId("study").replaceChildren(
    make("p", { class: "lead", id: "about" }),
    make("p", { class: "sentence", id: "sum", role: "status" }),
    make("label", { class: "check" }, "Wanted precision: ± ", input, " points"),
    make("div", { id: "figures" }),
    make("p", { class: "footnote" }, "A rating is one answer by one person, on all scales. Kappas are of three bands, 0–33, 34–66 and 67–100, and of answers that all their raters have rated; alpha is of the numbers. Means of arms are not shown while people rate, so that nobody stops when they like the result: ", make("code", {}, "evenhand annotate import"), " shows them. What is needed is an estimate from the spread so far."),
  );
  byId("study").hidden = false;
  await refresh();
  setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, EVERY);
});
