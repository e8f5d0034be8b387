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

// The start form: only the methods that serve the chosen benchmark can be chosen.
const methods = document.querySelector("#methods[data-kinds]");
if (methods) {
  const kinds = Object.fromEntries(methods.dataset.kinds.split(" ").map((each) => each.split("=")));
  const benchmark = document.querySelector("select[name=benchmark]");
  const file = document.querySelector("#own input[type=file]");
  const fit = () => {
    if (file.files.length) benchmark.value = "prompts";
    for (const each of methods.querySelectorAll("label")) {
      each.hidden = !each.dataset.kinds.split(" ").includes(kinds[benchmark.value]);
      if (each.hidden) each.querySelector("input").checked = false;
    }
  };
  benchmark.addEventListener("change", fit);
  file.addEventListener("change", fit);
  fit();
}
