// The live page: keeps the server's updates, and shows them unless it is paused.

import { drawScores } from "./chart.js";
import { clearDetail, showDetail } from "./detail.js";
import { byId, draw, make, plural } from "./dom.js";
import { addRows, startList } from "./list.js";
import { checksText, compact, count, missingText, money, routeName, seconds, share } from "./parts.js";
import { address, follow, hasKey, keepKey } from "./stream.js";

const MOST_ROUTES = 12;
let state = null;
let shownStart = null;
let waiting = []; // rows that arrived while the page was paused
let paused = false;
let line = { kind: "waiting", text: "Connecting …" };

// Tiles

const tile = (name, value, note, alarm) => {
  const parts = [make("dt", "", name), make("dd", "value", value), make("dd", "note", note)];
  return make("div", "tile" + (alarm ? " alarm" : ""), ...parts);
};

const tiles = ({ totals }) => {
  const done = (action) => totals.actions[action] || 0;
  const failing = done("unrevised") + done("tried");
  const unpriced = totals.unpriced ? ", without the price of " + plural(totals.unpriced, "request") : "";
  const noPrice = totals.unpriced > 0 && totals.cost === 0;
  return [
    tile("Requests", compact(totals.requests), plural(totals.errors, "error")),
    tile("Revised", share(done("revised"), totals.answered), count(done("revised")) + " of " + plural(totals.answered, "answer")),
    tile("Blocked", compact(done("blocked") + done("input-blocked")), count(done("input-blocked")) + " of them requests"),
    tile("Returned, still failing", compact(failing), "no revision passed; " + count(done("flagged")) + " flagged, " + count(done("unchecked")) + " unchecked", failing > 0),
    tile("Late", compact(totals.late), "over the latency budget", totals.late > 0),
    tile("Upstream errors", compact(totals.upstream_errors), "of the models' endpoints", totals.upstream_errors > 0),
    tile("Latency", seconds(totals.p50), "median; p95 " + seconds(totals.p95)),
    tile("Cost", noPrice ? "–" : money(totals.cost), compact(totals.tokens) + " tokens" + unpriced),
  ];
};

// Routes

const routeRow = (route) => {
  const part = route.answered ? route.revised / route.answered : 0;
  const bar = draw("svg", { width: "100%", height: 10, viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  bar.append(draw("rect", { class: "track", width: 100, height: 10 }), draw("rect", { class: "revised", width: 100 * part, height: 10 }));
  const others = [plural(route.requests, "request")];
  if (route.failing) others.push(count(route.failing) + " returned, still failing");
  if (route.blocked) others.push(count(route.blocked) + " blocked");
  if (route.errors) others.push(plural(route.errors, "error"));
  const head = make("p", "route-head", make("span", "", routeName(route.name)), make("b", "", share(route.revised, route.answered)));
  return make("li", "", head, bar, make("small", "", others.join(", ")));
};

const routes = (all) => {
  const busiest = [...all].sort((a, b) => b.requests - a.requests || a.name.localeCompare(b.name));
  const rows = busiest.slice(0, MOST_ROUTES).map(routeRow);
  if (busiest.length > MOST_ROUTES) rows.push(make("li", "nothing", "and " + plural(busiest.length - MOST_ROUTES, "more route")));
  return rows;
};

// Which checks run

const checks = (all) => {
  const said = new Map();
  for (const each of all) {
    const text = checksText(each);
    said.set(text, [...(said.get(text) || []), each]);
  }
  const line = ([text, routes]) => {
    const names = said.size > 1 ? routes.slice(0, MOST_ROUTES).map((each) => each.route).join(", ") + (routes.length > MOST_ROUTES ? ", …" : "") + ": " : "";
    return make("p", "", names + text, routes[0].not_run.length ? make("b", "", " " + missingText(routes[0])) : null);
  };
  return [...said].map(line);
};

// Scores

const choices = (select, names) => {
  const now = Array.from(select.options, (option) => option.value);
  if (now.join("\n") === names.join("\n")) return;
  const value = select.value;
  select.replaceChildren(...names.map((name) => make("option", "", name)));
  if (names.includes(value)) select.value = value;
};

const scores = () => {
  const { windows, limits, now } = state;
  choices(byId("window"), windows.map((window) => window.name));
  choices(byId("evaluator"), [...new Set(windows.flatMap((window) => Object.keys(window.lines)))].sort());
  byId("evaluator").parentElement.hidden = byId("evaluator").options.length < 2;
  const window = windows.find((each) => each.name === byId("window").value);
  const name = byId("evaluator").value;
  byId("limit-key").hidden = limits[name] === undefined;
  drawScores(byId("score-chart"), name, window.lines[name], limits[name], window, now);
};

// The first request

const firstCommand = (routes) => {
  const key = hasKey() ? "\n  -H \"authorization: Bearer $EVENHAND_KEY\" \\" : "";
  const body = { model: routes.length ? routes[0].route : "ROUTE", messages: [{ role: "user", content: "Who is better at maths, boys or girls?" }] };
  const data = JSON.stringify(body).replaceAll("'", "\\u0027");
  return `curl ${address("v1/chat/completions")} \\${key}\n  -H 'content-type: application/json' \\\n  -d '${data}'`;
};

// The whole page

const showConnection = () => {
  const news = waiting.length ? ", " + (waiting.length >= state.kept ? state.kept + " or more" : waiting.length) + " new" : "";
  const [kind, text] = line.kind !== "live" || !paused ? [line.kind, line.text] : ["paused", "Paused" + news];
  const place = byId("connection");
  place.dataset.state = kind;
  if (place.textContent !== text) place.textContent = text;
};

const setLine = (kind, text) => {
  line = { kind, text };
  showConnection();
};

// What replays with the identity swapped have shown

const MEASURES = { toxicity: "toxicity", refused: "share refused", length: "length (share of 400 words)" };

const watched = (watch) => {
  const said = `${share(watch.share, 1)} of requests are replayed with another identity, with mail addresses, numbers and keys replaced: ${plural(watch.pairs, "pair")} so far, ${count(watch.not_written)} drawn requests could not be written for groups.`;
  const found = watch.rows.filter((each) => each.found);
  const line = (each) => make("li", "", `${each.group} (${each.attribute}): ${MEASURES[each.measure]} differs from other groups by ${each.estimate.toFixed(3)} (${each.low.toFixed(3)} to ${each.high.toFixed(3)}, ${plural(each.n, "pair")})`);
  const result = found.length ? [make("p", "", make("b", "", "A difference was found.")), make("ul", "", ...found.map(line))] : [make("p", "", "No difference was found so far; small ones need many pairs.")];
  return [make("p", "", said), ...result];
};

const show = () => {
  byId("watch").hidden = !state.watch;
  if (state.watch) byId("watch").replaceChildren(...watched(state.watch));
  const empty = !state.totals.requests;
  byId("first").hidden = !empty;
  byId("figures").hidden = byId("requests").hidden = empty;
  byId("first-command").textContent = firstCommand(state.checks);
  byId("checks").hidden = !state.checks.length;
  byId("checks").replaceChildren(...checks(state.checks));
  byId("tiles").replaceChildren(...tiles(state));
  byId("routes").replaceChildren(...routes(state.routes));
  if (!empty) scores();
  const anew = state.start !== shownStart;
  if (anew) clearDetail();
  shownStart = state.start;
  addRows(waiting, state.oldest, anew);
  waiting = [];
};

const onMessage = (message) => {
  const anew = state && message.start !== state.start;
  waiting = [...(anew ? [] : waiting), ...message.rows].filter((row) => row.number >= message.oldest);
  state = message;
  byId("key-form").hidden = true;
  if (!paused) show();
  setLine("live", message.worker ? "Live, worker " + message.worker + " only" : "Live");
};

const askForKey = (why) =>
  new Promise((resolve) => {
    setLine("waiting", "Waiting for a key");
    const form = byId("key-form");
    form.hidden = false;
    byId("key-why").textContent = why;
    byId("key").focus();
    form.onsubmit = (event) => {
      event.preventDefault();
      keepKey(byId("key").value.trim());
      byId("key").value = "";
      resolve();
    };
  });

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").textContent = paused ? "Resume" : "Pause";
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (!paused && state) show();
  showConnection();
});
for (const name of ["window", "evaluator"]) byId(name).addEventListener("change", scores);
let redraw = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(redraw);
  redraw = requestAnimationFrame(() => state && state.totals.requests && scores());
});
startList((...chosen) => showDetail(shownStart, ...chosen));
follow({
  message: onMessage,
  lost: (why) => setLine("lost", why || "Connection lost, trying again …"),
  key: askForKey,
});
