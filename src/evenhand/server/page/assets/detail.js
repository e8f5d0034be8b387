// One request: what was changed, the evaluators' critiques, and usage and time.

import { diff, likeness } from "./diff.js";
import { byId, make, plural, showPane } from "./dom.js";
import { actionMark, checksText, missingText, moment, money, routeName, score, seconds } from "./parts.js";
import { ask, reason } from "./stream.js";

const ALIKE = 0.3; // below this likeness, two texts side by side are easier to read than a diff
const ATTEMPTS = 20;
const GONE = 499;
const place = byId("detail");
let wanted = null;

const unseen = (text) => make("span", "unseen", text);
const CHANGES = { removed: ["del", "−", "removed: "], added: ["ins", "+", "added: "] };

const changed = (runs) =>
  runs.map(([kind, text]) => {
    if (kind === "same") return document.createTextNode(text);
    const [name, sign, spoken] = CHANGES[kind];
    const mark = make("span", "change-sign", sign);
    mark.setAttribute("aria-hidden", "true");
    return make(name, "", mark, unseen(spoken), text);
  });

const box = (kind, title, ...content) => {
  const pre = make("pre", "", ...content);
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", title);
  return make("div", "say " + kind, make("span", "", title), pre);
};

const texts = (event) => {
  if (event.action === "error") return [["", "Asked", event.prompt], ["output", "Sent before the answer broke off", event.text]].filter(([, , text]) => text).map((part) => box(...part));
  if (event.withheld) return [make("p", "note", "The texts of this request are not kept.")];
  if (event.action === "scored") return [box("", "Scored text", event.prompt || event.text)];
  if (event.action === "embedded") return [box("", "Embedded text", event.prompt || "(tokens)")];
  const parts = [box("", "Asked", event.prompt || "(nothing)")];
  if (!event.first && !event.text) return [...parts, make("p", "note", "The answer has no text.")];
  if (event.first === event.text) return [...parts, box("output", "Answer, unchanged", event.text)];
  const runs = diff(event.first, event.text);
  if (!event.first || !event.text || likeness(runs) < ALIKE) {
    const both = [box("", "First answer", event.first || "(nothing)"), box("output", "Returned answer", event.text || "(nothing)")];
    return [...parts, make("div", "change", ...both)];
  }
  const legend = make("p", "diff-key", make("del", "", make("span", "change-sign", "−"), "removed"), " ", make("ins", "", make("span", "change-sign", "+"), "added"));
  return [...parts, box("diff", "From the first answer to the returned answer", ...changed(runs)), legend];
};

const verdict = (check) => {
  if (!check) return make("span", "no-score", "not checked");
  if (check.problem) return make("span", "unscored", "? ", check.problem);
  return make("span", check.passed ? "good" : "bad", (check.passed ? "✓ " : "✗ ") + score(check.score), unseen(check.passed ? " passed" : " failed"));
};

const critic = (name, before, after, title = "On the first answer") => {
  const limit = (before || after).limit;
  const scores = make("p", "verdicts-line", make("b", "", name), verdict(before), after ? make("span", "arrow", "→") : null, after ? verdict(after) : null);
  if (limit !== null) scores.append(make("small", "", "limit " + score(limit)));
  const words = [[title, before], ["On the returned answer", after]]
    .filter(([, check]) => check && check.words)
    .map(([title, check]) => box("words", title, check.words));
  return make("li", "", scores, ...words);
};

const critics = (event) => {
  const same = JSON.stringify(event.before) === JSON.stringify(event.after);
  const sides = [event.before, same ? [] : event.after].map((checks) => new Map(checks.map((check) => [check.name, check])));
  const names = [...new Set([...sides[0].keys(), ...sides[1].keys()])];
  if (!names.length) return [make("p", "note", "No evaluator checked this request.")];
  return [make("ul", "critics", ...names.map((name) => critic(name, sides[0].get(name), sides[1].get(name))))];
};

const requestCheck = (event) => {
  if (!event.input) return [];
  const list = make("ul", "critics", ...event.input.checks.map((check) => critic(check.name, check, null, "On the request")));
  return [make("h4", "", "Check of the request: " + event.input.action), list];
};

const fact = (name, value) => make("div", "", make("dt", "", name), make("dd", "", value));

const facts = (event) => {
  const { usage, stages } = event;
  const tokens = plural(usage.prompt_tokens, "token") + " in, " + plural(usage.completion_tokens, "token") + " out";
  const calls = plural(usage.calls, "call") + (usage.retries ? ", " + (usage.retries === 1 ? "1 retry" : usage.retries + " retries") : "");
  const rows = Object.entries(stages).filter(([name]) => name !== "total").map(([name, value]) => fact(name, seconds(value)));
  if (event.first_segment !== null) rows.push(fact("first text sent", seconds(event.first_segment)));
  rows.push(fact("in all", seconds(event.seconds)), fact("model", calls + "; " + tokens));
  rows.push(fact("cost", usage.cost === null ? "price not known" : money(usage.cost)));
  rows.push(fact("endpoint", event.endpoint + (event.stream ? ", streamed" : "") + ", HTTP " + event.status));
  if (event.key) rows.push(fact("key", event.key));
  rows.push(fact("id", event.id));
  return make("dl", "facts", ...rows);
};

const view = (event) => {
  const late = event.late ? make("span", "late", ", late") : null;
  const head = make("h3", "", actionMark(event.action), " on " + routeName(event.route), late);
  const problem = [event.status === GONE ? "The client disconnected before " + (event.text ? "the end of the answer." : "the answer.") : "", event.error, event.upstream_error ? "The model's endpoint: " + event.upstream_error + "." : ""].filter(Boolean).join(" ");
  return [
    head,
    make("p", "sample-meta", moment(event.time)),
    event.why.length ? make("p", "why", "Why: " + event.why.join(", ")) : null,
    problem ? make("p", "why", problem) : null,
    ...texts(event),
    event.cut_after ? make("p", "note", "Texts are shown up to " + event.cut_after.toLocaleString("en") + " characters.") : null,
    ...requestCheck(event),
    make("h4", "", "Evaluators"),
    ...critics(event),
    event.checks ? make("p", "note", checksText(event.checks) + (event.checks.not_run.length ? " " + missingText(event.checks) : "")) : null,
    make("h4", "", "Usage and time"),
    facts(event),
  ].filter(Boolean);
};

/** Fetch the request from the process that has it; with several workers on one port, this may take some attempts. */
const fetchRequest = async (start, number) => {
  let response;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    response = await ask("requests/" + start + "/" + number);
    if (response.status !== 409) break;
  }
  return response;
};

/** Fetch and show one request; texts are sent only on demand. */
export const showDetail = async (start, row, button, byPointer) => {
  wanted = row.number;
  let content;
  try {
    const response = await fetchRequest(start, row.number);
    content = response.ok ? view(await response.json()) : [make("p", "nothing", await reason(response))];
  } catch {
    content = [make("p", "nothing", "The server cannot be reached. Try again later.")];
  }
  if (wanted !== row.number) return; // another request was chosen in the meantime
  showPane(place, button, byPointer, ...content);
};

export const clearDetail = () => {
  wanted = null;
  place.replaceChildren(make("p", "nothing", "Choose a request to see what was changed and why."));
};
