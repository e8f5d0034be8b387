// How both pages speak with the server.

import { byId } from "./dom.js";

const KEY = "evenhand-link";
const SKIP = "#main"; // of the frame, for keyboards
let formToken = "";

const linkInAddress = () => (location.hash.length > 1 && location.hash !== SKIP ? location.hash.slice(1) : "");

/** Takes the token out of the address into this tab; it is never part of a request's address. */
export const takeLink = () => {
  if (linkInAddress()) {
    sessionStorage.setItem(KEY, linkInAddress());
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY);
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const send = (path, body) => {
  const headers = { Authorization: "Bearer " + sessionStorage.getItem(KEY) };
  if (body === undefined) return fetch(path, { headers, cache: "no-store" });
  headers["Content-Type"] = "application/json";
  headers["X-Token"] = formToken;
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" });
};

/** The server's JSON; throws Refused with its sentence, or TypeError if it cannot be reached. */
export const ask = async (path, body) => {
  let response = await send(path, body);
  if (response.status === 403 && body !== undefined) {
    // The server may have been started again since; it gives out a new form token with every answer.
    await ask("/api/rating");
    response = await send(path, body);
  }
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, content?.error?.message || "The server answered " + response.status + ".");
  formToken = content.token;
  return content;
};

const WRONG = "This link is not valid. Open the whole link that you were given, or ask the study's owner for a new one.";

export const showProblem = (error) => {
  const problem = byId("problem");
  problem.textContent = error instanceof Refused ? (error.status === 401 ? WRONG : error.message) : "The server cannot be reached. Reload the page to try again.";
  problem.hidden = false;
};

/** Starts the page with the link in the address, and again when another link is pasted there. */
export const startWithLink = (start) => {
  addEventListener("hashchange", () => { if (linkInAddress()) location.reload(); });
  if (!takeLink()) showProblem(new Refused(401, ""));
  else start().catch(showProblem);
};
