// How this page's scripts write numbers, times and actions.

import { make } from "./dom.js";

const DASH = "–";

export const count = (n) => n.toLocaleString("en");
export const compact = (n) => {
  if (n < 10_000) return count(n);
  return n < 999_950 ? (n / 1e3).toFixed(1) + "k" : (n / 1e6).toFixed(2) + "M";
};
export const share = (part, whole) => (whole ? ((100 * part) / whole).toFixed(1) + "%" : DASH);
export const score = (value) => {
  if (value === null || value === undefined) return DASH;
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
};
export const seconds = (value) => {
  if (value === null || value === undefined) return DASH;
  if (value < 0.9995) return Math.round(value * 1000) + " ms";
  return value < 99.5 ? value.toFixed(1) + " s" : Math.round(value / 60) + " min";
};
export const money = (value) => {
  if (value === null || value === undefined) return DASH;
  if (value > 0 && value < 0.0001) return "<$0.0001";
  const digits = value === 0 || value >= 1 ? 2 : 4;
  return "$" + value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
};
export const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");
export const moment = (time) => new Date(time * 1000).toLocaleString("en-GB");
export const routeName = (name) => name || "no route";

const listed = (names) => names.join(" and ");
/** Which checks run on answers and requests, in a sentence. */
export const checksText = (checks) => "Checks: " + (checks.run.join(", ") || "none") + (checks.requests.length ? "; of requests: " + checks.requests.join(", ") : "") + ".";
/** Which of the usual checks do not run, in a sentence. */
export const missingText = (checks) => {
  const text = listed(checks.not_run) + (checks.not_run.length > 1 ? " are" : " is") + " not checked.";
  return text[0].toUpperCase() + text.slice(1);
};

const SIGNS = {
  passed: "✓", revised: "✎", tried: "≈", unrevised: "!", flagged: "⚑", unchecked: "?", blocked: "■", "input-blocked": "⊘", bypassed: "○", scored: "·", embedded: "·", error: "✗",
};
export const ACTIONS = Object.keys(SIGNS);
export const actionMark = (action) => {
  const sign = make("span", "action-sign", SIGNS[action] || "?");
  sign.setAttribute("aria-hidden", "true");
  return make("span", "action action-" + (SIGNS[action] ? action : "other"), sign, action);
};
