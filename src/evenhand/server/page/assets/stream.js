// The stream of updates. It is read with fetch, because EventSource cannot send a key.

const KEY = "evenhand-key";
const BASE = location.origin + location.pathname; // without a name and password in the address
const SILENCE = 30_000; // the server sends a message every ten seconds; longer silence means a lost connection
const LONGEST_WAIT = 8_000;

export const keepKey = (key) => sessionStorage.setItem(KEY, key);

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export const address = (path) => BASE + path;

export const ask = (path, options = {}) => {
  const key = sessionStorage.getItem(KEY);
  return fetch(address("page/" + path), { ...options, headers: key ? { Authorization: "Bearer " + key } : {}, cache: "no-store" });
};

/** The server's error message; its errors have OpenAI's format. */
export const reason = async (response) => {
  const body = await response.json().catch(() => null);
  return body?.error?.message || "The server answered " + response.status + ".";
};

const later = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const read = async (body, control, onMessage) => {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const timer = setTimeout(() => control.abort(), SILENCE);
    const { value, done } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) onMessage(JSON.parse(part.slice(6)));
  }
};

/** Follow the server forever; `on` has callbacks for messages, a lost connection and a required key. */
export const follow = async (on) => {
  let wait = 500;
  for (;;) {
    const control = new AbortController();
    try {
      const response = await ask("events", { signal: control.signal });
      if (response.status === 401 || response.status === 403) {
        await on.key(hasKey() ? await reason(response) : "");
        continue;
      }
      if (!response.ok) throw new Error(await reason(response));
      await read(response.body, control, (message) => {
        wait = 500;
        on.message(message);
      });
      on.lost("");
    } catch (error) {
      on.lost(error instanceof TypeError || error.name === "AbortError" ? "" : error.message);
    }
    await later(wait);
    wait = Math.min(LONGEST_WAIT, wait * 2);
  }
};
