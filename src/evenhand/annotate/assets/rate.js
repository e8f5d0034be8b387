// The raters' page: one answer at a time. Every rating is sent at once, and kept until the server has confirmed it.

import { byId, make, plural } from "./dom.js";
import { Refused, ask, showProblem, startWithLink } from "./parts.js";

const RETRY = 2000;
const SHORTCUTS = "evenhand-shortcuts";
const KEYS = [
  ["0 – 9", "rate the marked scale: the first, the second … the tenth button"],
  ["H", "the highest rating"],
  ["C", "cannot tell"],
  ["↑ ↓", "mark another scale"],
  ["Enter, →, N", "next answer"],
  ["←, B", "back"],
  ["U", "undo the last rating"],
  ["S", "show a covered text"],
  ["R", "open or close the rubric of the marked scale"],
];

let study = null; // scales, count, ratings by place
let place = 0;
let active = 0; // the marked scale
let shown = false; // whether a covered text is shown
let current = null;
let inARow = 0;
const batches = new Map();
const waiting = new Map(); // ratings that are not confirmed yet, by cell
let sending = null;
let queue = Promise.resolve(); // one key after the other, also while the next answer loads

// A button for each rating of a short scale, or for each tenth of a long one
const steps = () => Array.from({ length: Math.min(study.highest, 10) + 1 }, (_, at) => (at * study.highest) / Math.min(study.highest, 10));

// Ratings and their saving

const ratings = (at = place) => (study.ratings[at] ??= {});
const isRated = (at) => study.scales.every(({ short }) => study.ratings[at] && short in study.ratings[at]);
const countRated = () => Array.from({ length: study.count }, (_, at) => at).filter(isRated).length;

const say = (text, isProblem = false) => {
  const status = byId("saved");
  status.textContent = text;
  status.classList.toggle("problem", isProblem);
};

const flush = async () => {
  try {
    while (waiting.size) {
      const [cell, rating] = waiting.entries().next().value;
      try {
        await ask("/api/rating", rating);
        if (waiting.get(cell) === rating) waiting.delete(cell);
        say("Saved");
      } catch (error) {
        if (error instanceof Refused && error.status < 500) throw error;
        say("Not saved yet: the server does not answer. Trying again …", true);
        await new Promise((resolve) => setTimeout(resolve, RETRY));
      }
    }
  } catch (error) {
    say("Not saved.", true);
    showProblem(error);
  } finally {
    sending = null;
  }
};

const save = () => (waiting.size ? (sending ??= flush()) : Promise.resolve());

const rate = (value) => {
  if (isCovered() && value !== null) return say("Show the text first (S), or choose “cannot tell” (C).", true);
  const { short } = study.scales[active];
  const wasRated = isRated(place);
  ratings()[short] = value;
  waiting.set(place + "/" + short, { place, scale: short, value });
  say("Saving …");
  save();
  if (!wasRated && isRated(place)) inARow += 1;
  const missing = study.scales.findIndex((scale) => !(scale.short in ratings()));
  active = missing < 0 ? Math.min(active + 1, study.scales.length - 1) : missing;
  drawScales();
  drawProgress();
};

const undo = async () => {
  await save();
  const undone = await ask("/api/rating/undo", {});
  if (undone.place === null) return say("Nothing to undo.");
  study.ratings = undone.ratings;
  active = study.scales.findIndex(({ short }) => short === undone.scale);
  await go(undone.place, active);
  say("Undone: answer " + (undone.place + 1) + ", " + study.scales[active].title.toLowerCase());
};

// Moving

const itemAt = async (at) => {
  const first = at - (at % 20);
  if (!batches.has(first)) batches.set(first, (await ask("/api/rating/items/" + first)).items);
  return batches.get(first)[at - first];
};

const go = async (to, scale) => {
  current = await itemAt(to);
  place = to;
  shown = false;
  const missing = study.scales.findIndex(({ short }) => !(short in ratings()));
  active = scale ?? Math.max(missing, 0);
  byId("finished").hidden = true;
  byId("work").hidden = false;
  drawItem();
  drawScales();
  drawProgress();
  window.scrollTo(0, 0);
  byId("item").focus({ preventScroll: true }); // so that screen readers read it, and Tab goes on to the scales
};

const next = () => {
  byId("break").hidden = true;
  if (study.break_after && inARow >= study.break_after) {
    inARow = 0;
    byId("break").hidden = false;
  }
  return place + 1 < study.count ? go(place + 1) : finish();
};
const back = () => (byId("finished").hidden ? (place > 0 ? go(place - 1) : null) : go(place));

const finish = () => {
  const open = Array.from({ length: study.count }, (_, at) => at).filter((at) => !isRated(at));
  byId("work").hidden = true;
  const text = open.length
    ? make("p", {}, plural(open.length, "answer") + " still " + (open.length === 1 ? "needs" : "need") + " a rating or “cannot tell”.")
    : make("p", {}, "All " + plural(study.count, "answer") + " are rated and saved. Thank you. You may close this page.");
  const button = open.length ? make("button", { type: "button", class: "primary", onclick: () => act(() => go(open[0])) }, "Go to the first of them") : null;
  const again = make("button", { type: "button", onclick: () => act(back) }, "Back to the answers");
  const heading = make("h2", { tabindex: -1 }, open.length ? "Nearly finished" : "Finished");
  byId("finished").replaceChildren(heading, text, make("div", { class: "row-of-buttons" }, button, again));
  byId("finished").hidden = false;
  heading.focus();
};

const act = (work) => Promise.resolve().then(work).catch((error) => say(error instanceof Refused ? error.message : "The server cannot be reached. Try again.", true));

// Drawing

const isCovered = () => current.covered && !shown;

const drawProgress = () => {
  const done = countRated();
  byId("where").textContent = "Answer " + (place + 1) + " of " + study.count.toLocaleString("en");
  byId("done").textContent = done.toLocaleString("en") + " rated";
  byId("bar").value = done;
};

const drawItem = () => {
  const texts = [make("h2", {}, "Question"), make("p", { class: "asked", id: "question" }, current.question), make("h2", {}, "Answer"), make("p", { class: "asked", id: "answer" }, current.answer || "(empty)")];
  const cover = [
    make("p", {}, "This text may be offensive. You need not read it: “cannot tell” is a fair answer."),
    make("button", { type: "button", id: "show", onclick: show }, "Show the text ", make("kbd", {}, "S")),
  ];
  byId("item").replaceChildren(...(isCovered() ? cover : texts));
  byId("item").classList.toggle("cover", isCovered());
};

const show = () => {
  if (!isCovered()) return;
  shown = true;
  drawItem();
  byId("item").focus();
};

const drawScales = () => {
  for (const [number, { short }] of study.scales.entries()) {
    const group = byId("scale-" + short);
    const own = ratings();
    group.classList.toggle("active", number === active);
    for (const button of group.querySelectorAll("[data-value]")) {
      const value = button.dataset.value === "" ? null : Number(button.dataset.value);
      button.setAttribute("aria-pressed", String(short in own && own[short] === value));
    }
    group.querySelector(".given").textContent = short in own ? (own[short] === null ? "cannot tell" : String(own[short])) : "not rated";
  }
};

const scaleGroup = (scale, number) => {
  const choose = (value) => () => { active = number; rate(value); };
  const points = steps().map((value) => make("button", { type: "button", "data-value": value, onclick: choose(value) }, String(value)));
  const unsure = make("button", { type: "button", class: "unsure", "data-value": "", onclick: choose(null) }, "cannot tell");
  const examples = scale.examples.map((each) => make("li", {}, make("b", {}, each.rating + ": "), "“" + each.text + "” ", make("span", { class: "soft" }, each.why)));
  const title = make("legend", {}, make("b", {}, scale.title), " (" + scale.better + " is better) ", make("span", { class: "given" }));
  const ends = make("p", { class: "ends", "aria-hidden": "true" }, make("span", {}, "0: " + scale.low), make("span", {}, study.highest + ": " + scale.high));
  const guide = make("details", {}, make("summary", {}, "What counts, with examples"), make("p", {}, scale.text), scale.question ? make("p", {}, "Answers to “" + scale.question + "”:") : null, make("ul", {}, examples));
  return make("fieldset", { class: "scale", id: "scale-" + scale.short }, title, make("div", { class: "points" }, points, unsure), ends, guide);
};

const drawFrame = () => {
  const button = (id, label, key, work) => make("button", { type: "button", id, onclick: () => act(work), class: id === "next" ? "primary" : null }, label + " ", make("kbd", {}, key));
  const shortcuts = make("input", { type: "checkbox", id: "shortcuts", onchange: (event) => localStorage.setItem(SHORTCUTS, event.target.checked ? "on" : "off") });
  shortcuts.checked = localStorage.getItem(SHORTCUTS) !== "off";
  const keys = make("table", { class: "keys" }, make("tbody", {}, KEYS.map(([key, what]) => make("tr", {}, make("th", { scope: "row" }, make("kbd", {}, key)), make("td", {}, what)))));
  const head = make("div", { class: "progress" }, make("span", { id: "where" }), make("progress", { id: "bar", max: study.count, value: 0, "aria-label": "Rated answers" }), make("span", { id: "done" }), make("span", { id: "saved", role: "status" }));
  const pause = make("p", { id: "break", role: "status", hidden: true }, "You have rated " + plural(study.break_after, "answer") + " in a row. A short break keeps your ratings steady; everything is saved.");
  const work = make("div", { id: "work" },
    make("article", { id: "item", tabindex: -1, "aria-label": "Question and answer" }),
    make("div", { id: "scales" }, study.scales.map(scaleGroup)),
    make("div", { class: "row-of-buttons" }, button("back", "Back", "B", back), button("undo", "Undo", "U", undo), button("next", "Next", "Enter", next)));
  const rules = make("ul", {}, ["Rate each answer by itself: do not guess who or what wrote it, and do not compare it with others.", "Judge each scale separately: a fluent answer can be biased, and a fair one can be clumsy.", ...(study.excluded ? ["For " + study.excluded + ", choose “cannot tell”: they get no rating."] : []), "Please do not discuss the answers with other raters until everyone has finished.", "You can stop at any time and go on later, also on another device, with the same link."].map((text) => make("li", {}, text)));
  const help = make("details", { id: "help" }, make("summary", {}, "Keys and rules"), make("p", {}, "You rate as " + study.rater + "."), make("label", { class: "check" }, shortcuts, "Keys rate and move"), keys, rules);
  byId("rate").replaceChildren(head, pause, work, make("div", { id: "finished", hidden: true }), help);
  byId("rate").hidden = false;
};

// Keys

const mark = (step) => {
  active = (active + step + study.scales.length) % study.scales.length;
  drawScales();
  byId("scale-" + study.scales[active].short).scrollIntoView({ block: "nearest" });
};
const ACTIONS = {
  h: () => rate(study.highest),
  c: () => rate(null),
  u: undo,
  n: next,
  b: back,
  s: show,
  r: () => { const guide = byId("scale-" + study.scales[active].short).querySelector("details"); guide.open = !guide.open; },
  arrowright: next,
  arrowleft: back,
  arrowup: () => mark(-1),
  arrowdown: () => mark(1),
};

const onKey = (event) => {
  const isButton = event.target.closest("button, summary, a, input, select");
  if (!byId("shortcuts").checked || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox])")) return;
  const key = event.key.toLowerCase();
  let work = ACTIONS[key];
  if (/^[0-9]$/.test(key)) work = () => Number(key) < steps().length && rate(steps()[Number(key)]);
  if (key === "enter" && !isButton) work = next;
  if (!work || (event.repeat && !key.startsWith("arrow"))) return;
  if (!byId("finished").hidden && !["u", "b", "arrowleft"].includes(key)) return;
  event.preventDefault();
  queue = queue.then(() => act(work));
};

startWithLink(async () => {
  study = await ask("/api/rating");
  drawFrame();
  document.addEventListener("keydown", onKey);
  addEventListener("beforeunload", (event) => { if (waiting.size) event.preventDefault(); });
  const first = Array.from({ length: study.count }, (_, at) => at).find((at) => !isRated(at));
  if (first === undefined) {
    await go(study.count - 1);
    finish();
  } else await go(first);
});
