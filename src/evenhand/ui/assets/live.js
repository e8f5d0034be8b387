// Follows running runs: updates their bars, and loads the page again when something has ended or was read.

const EVERY = 2000;
const LATER = 10000;
const shown = () => [...document.querySelectorAll("[data-running]")];
const waiting = document.querySelector("[data-unread], [data-reading]");
const pending = document.querySelector("[data-pending]");
const chosen = () => document.querySelector("main input:checked[name=arm]") || document.activeElement?.matches("main input, main select");

const again = () => {
  // Somebody is choosing: what they have chosen must not be lost.
  if (!chosen()) location.reload();
};

const look = async () => {
  let state;
  try {
    const reply = await fetch("/state.json");
    if (!reply.ok) return;
    state = await reply.json();
  } catch {
    return; // the server may be restarting
  }
  for (const each of shown()) {
    const now = state.running[each.dataset.running];
    if (!now) {
      again();
      return;
    }
    each.querySelector("progress").value = now.done;
    each.querySelector("[data-words]").textContent = now.words;
  }
  if (waiting && (waiting.dataset.reading || String(state.unread) !== waiting.dataset.unread)) again();
};

if (waiting || shown().length) setInterval(look, EVERY);
if (pending) setInterval(again, LATER);
