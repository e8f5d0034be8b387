// The list of recent requests: newest first, bounded, and stable for the reader while it grows.

import { byId, make, markCurrent, offer, plural, step } from "./dom.js";
import { ACTIONS, actionMark, clock, routeName, score, seconds } from "./parts.js";

const list = byId("list");
const filters = { route: byId("filter-route"), action: byId("filter-action") };
let rows = [];
let chosen = null;
let onChoose = () => {};

const matches = (row) =>
  (filters.route.value === "any" || "is " + row.route === filters.route.value) &&
  (filters.action.value === "any" || row.action === filters.action.value);

const change = ([name, before, after]) => {
  const same = before === after || after === null;
  return make("span", "", name + " " + score(before) + (same ? "" : " → " + score(after)));
};

const item = (row) => {
  const head = make("span", "item-head", make("span", "", routeName(row.route)), make("span", "", clock(row.time)));
  const facts = [actionMark(row.action)];
  if (row.late) facts.push(make("span", "late", "late"));
  facts.push(...row.scores.slice(0, 3).map(change), make("span", "took", seconds(row.seconds)));
  const words = row.prompt || row.endpoint;
  const text = make("span", "item-text" + (row.prompt ? "" : " no-text"), words);
  const button = make("button", "", head, text, make("span", "item-arms", ...facts));
  button.type = "button";
  button.dataset.number = row.number;
  if (row.number === chosen) button.setAttribute("aria-current", "true");
  return make("li", "", button);
};

const tell = () => {
  const visible = list.querySelectorAll("button").length;
  const all = plural(rows.length, "recent request");
  byId("count").textContent = visible === rows.length ? all : visible + " of " + all;
};

const rebuild = () => {
  list.replaceChildren(...rows.filter(matches).map(item));
  if (!list.children.length) list.append(make("li", "nothing", "No recent request matches these filters."));
  list.parentElement.scrollTop = 0;
  tell();
};

const open = (button, byPointer) => {
  markCurrent(list, button);
  chosen = Number(button.dataset.number);
  onChoose(rows.find((row) => row.number === chosen), button, byPointer);
};

/** Show the newest request, unless another one is open. */
const openNewest = () => {
  const newest = list.querySelector("button");
  if (newest && chosen === null) open(newest, false);
};

/** Add the rows in `fresh`, oldest first, and drop rows older than `oldest`. */
export const addRows = (fresh, oldest, anew) => {
  if (anew) {
    rows = [];
    chosen = null;
  }
  const newest = rows.length ? rows[0].number : -1;
  const added = fresh.filter((row) => row.number > newest).reverse();
  rows = [...added, ...rows].filter((row) => row.number >= oldest);
  offer(filters.route, [...new Set(added.map((row) => row.route))].sort().map((name) => ["is " + name, routeName(name)]));
  if (anew || list.querySelector("li.nothing")) {
    rebuild();
    return openNewest();
  }
  const hadFocus = list.contains(document.activeElement);
  list.prepend(...added.filter(matches).map(item));
  for (const old of [...list.children].reverse()) {
    if (Number(old.firstChild.dataset.number) >= oldest) break;
    old.remove();
  }
  if (hadFocus && !list.contains(document.activeElement)) list.focus();
  tell();
  return openNewest();
};

/** Start the list; `choose` is called with the row, its button, and whether it was clicked. */
export const startList = (choose) => {
  onChoose = choose;
  offer(filters.action, ACTIONS.map((name) => [name, name]));
  for (const filter of Object.values(filters)) filter.addEventListener("change", rebuild);
  filters.route.form.addEventListener("submit", (event) => event.preventDefault());
  list.addEventListener("keydown", (event) => step(list, event, (button) => open(button, false)));
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(button, true);
  });
};
