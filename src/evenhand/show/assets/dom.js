// What the scripts of all pages draw with. Untrusted text reaches a page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element; `attributes` is its class, or an object, whose entries `on…` are listeners. */
export const make = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  const given = typeof attributes === "string" ? { class: attributes || null } : attributes;
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

export const draw = (name, attributes = {}, ...children) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

export const plural = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");

/** Adds the options of [value, text] that a select does not have yet. */
export const offer = (select, values) => {
  const known = new Set(Array.from(select.options, (option) => option.value));
  for (const [value, text] of values) if (!known.has(value)) select.append(make("option", { value }, text));
};

// A list of buttons with a pane beside it, which shows the chosen one

/** Arrow keys, Home and End choose another button. */
export const step = (list, event, open) => {
  const by = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!by || !(event.target instanceof HTMLButtonElement)) return;
  event.preventDefault();
  const buttons = [...list.querySelectorAll("button")];
  const place = Math.min(buttons.length - 1, Math.max(0, buttons.indexOf(event.target) + by));
  buttons[place].focus();
  open(buttons[place], place);
};

export const markCurrent = (list, button) => {
  for (const old of list.querySelectorAll("[aria-current]")) old.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
};

export const showPane = (pane, button, byPointer, ...content) => {
  const back = make("button", { class: "back", type: "button", onclick: () => button.focus() }, "Back to the list");
  pane.replaceChildren(back, ...content);
  pane.scrollTop = 0;
  // On a narrow screen the pane is below the list, so scroll to it.
  if (byPointer && getComputedStyle(back).display !== "none") pane.scrollIntoView({ block: "start" });
};
