"use strict";
// The sample browser; dom.js stands before it. Everything it shows is untrusted.
(async () => {
  const list = document.getElementById("sample-list");
  if (!list) return;
  // In a report the samples are compressed, so that the page stays small.
  const read = (node) => {
    if (!node.dataset.packed) return JSON.parse(node.textContent);
    const bytes = Uint8Array.from(atob(node.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(node.dataset.packed));
    return new Response(stream).json();
  };
  let data;
  try {
    data = await read(document.getElementById("sample-data"));
  } catch (error) {
    const notice = document.getElementById("sample-detail").firstChild;
    notice.textContent = "This browser cannot unpack the samples (" + error.message + "). Use one from 2023 or later.";
    return;
  }
  const arms = new Map(data.arms.map((arm) => [arm.id, arm]));
  const detail = document.getElementById("sample-detail");
  const more = document.getElementById("sample-more");
  const control = (name) => document.getElementById("sample-" + name);
  // With a source, the server filters, and a sample comes when it is opened.
  const source = detail.dataset.source;
  const PAGE = 100;
  let matching = [];
  let shown = 0;

  const words = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const targets = (value) => (Array.isArray(value) ? value.map(words).join(" / ") || "no answer" : words(value));
  const label = (id) => (arms.has(id) ? arms.get(id).label : id);
  const mark = (id) => {
    const index = arms.has(id) ? arms.get(id).index : 0;
    const use = draw("use", { href: "#mark-" + index, x: 8, y: 8, class: "dot arm-" + index });
    return draw("svg", { class: "mark", width: 16, height: 16, "aria-hidden": "true" }, use);
  };
  const pairs = (values) => {
    const entries = Object.entries(values || {});
    if (!entries.length) return null;
    const rows = entries.map(([key, value]) => make("div", "", make("dt", "", key), make("dd", "", words(value))));
    return make("dl", "pairs", ...rows);
  };
  const folded = (title, ...children) => make("details", "", make("summary", "", title), ...children);

  // Filtering

  const strings = (value) => {
    if (typeof value === "string") return value;
    return value && typeof value === "object" ? Object.values(value).map(strings).join("\n") : "";
  };
  const haystack = new Map();
  const textOf = (sample) => {
    if (!haystack.has(sample)) haystack.set(sample, strings(sample).toLowerCase());
    return haystack.get(sample);
  };
  const disagree = (sample) => new Set(sample.outcomes.map((o) => o.status + "\n" + o.answer)).size > 1;
  const matches = (sample) => {
    const [group, status, arm] = ["group", "status", "arm"].map((name) => control(name).value);
    const needle = control("search").value.trim().toLowerCase();
    const outcomes = sample.outcomes.filter((o) => !arm || o.arm === arm);
    return (
      (!group || sample.group === group) &&
      outcomes.some((o) => !status || o.status === status) &&
      (!control("disagree").checked || disagree(sample)) &&
      (!needle || textOf(sample).includes(needle))
    );
  };

  // The list

  const item = (sample) => {
    const byEnd = new Map();
    for (const o of sample.outcomes) {
      const end = o.status === "graded" ? o.answer || "no answer" : o.status;
      byEnd.set(end, [...(byEnd.get(end) || []), mark(o.arm)]);
    }
    const ends = [...byEnd].map(([end, marks]) => {
      return make("span", "", ...marks, make("span", "", end.length > 30 ? end.slice(0, 29) + "…" : end));
    });
    const head = make("span", "item-head", make("span", "", sample.group), make("span", "", sample.id));
    const text = (sample.context + " " + sample.prompt).trim().slice(0, 400);
    const button = make("button", "", head, make("span", "item-text", text), make("span", "item-arms", ...ends));
    button.type = "button";
    button.addEventListener("click", () => open(sample, button, true));
    return make("li", "", button);
  };
  const grow = () => {
    list.append(...matching.slice(shown, shown + PAGE).map(item));
    shown = Math.min(matching.length, shown + PAGE);
    more.hidden = shown >= matching.length;
  };
  const refresh = () => {
    matching = source ? data.samples : data.samples.filter(matches);
    shown = 0;
    list.replaceChildren();
    list.parentElement.scrollTop = 0;
    grow();
    if (!source) {
      const all = plural(data.samples.length, "sample");
      control("count").textContent = matching.length === data.samples.length ? all : matching.length + " of " + all;
    }
    const wanted = Math.max(0, matching.findIndex((sample) => sample.id === detail.dataset.opened));
    while (shown <= wanted && shown < matching.length) grow();
    const first = list.querySelectorAll("button")[wanted];
    if (first) open(matching[wanted], first, false);
    else detail.replaceChildren(make("p", "nothing", "No sample matches. Remove a filter to see more."));
  };

  // One sample

  const choices = (sample) => {
    if (!sample.choices.length) {
      return sample.target === null ? null : make("p", "sample-meta", "Target: " + targets(sample.target));
    }
    const rows = sample.choices.map((choice, i) => {
      const isTarget = sample.target === i || sample.target === choice;
      const by = sample.outcomes.filter((o) => o.status === "graded" && o.answer.trim() === choice.trim());
      const chosen = by.map((o) => make("span", "tag chosen", mark(o.arm), label(o.arm)));
      if (isTarget) chosen.push(make("span", "tag is-target", "✓ target"));
      return make("li", isTarget ? "target-choice" : "", make("span", "", choice), make("span", "tags", ...chosen));
    });
    return make("ul", "choices", ...rows);
  };
  const bubble = (kind, who, text) => {
    const pre = make("pre", "", text);
    pre.tabIndex = 0;
    return make("div", "say " + kind, make("span", "", who), pre);
  };
  // Messages repeated from the previous turn are collapsed, so that only new ones are shown.
  const repeated = (turn, before) => {
    let n = 0;
    while (before && n < turn.messages.length - 1 && n < before.messages.length) {
      if (turn.messages[n].join("\n") !== before.messages[n].join("\n")) break;
      n += 1;
    }
    return n;
  };
  const turnView = (turn, before, number) => {
    const facts = [
      turn.prompt_id + (turn.prompt_hash ? " @ " + turn.prompt_hash.slice(0, 12) : ""),
      plural(turn.tokens, "token"),
      turn.cached ? "from the cache" : turn.latency.toFixed(1) + " s",
    ];
    const messages = turn.messages.map(([role, text]) => bubble("", role, text));
    const same = repeated(turn, before);
    const old = same ? folded("Same as in the previous turn: " + plural(same, "message"), ...messages.slice(0, same)) : null;
    const outputs = turn.outputs.flatMap((text, i) => {
      const name = turn.outputs.length > 1 ? "answer " + (i + 1) : "answer";
      const thought = turn.thoughts[i];
      const before = thought ? folded("Thoughts before the " + name, bubble("", "thoughts", thought)) : null;
      return [before, bubble("output", name, text || "(nothing)")];
    });
    const model = make("span", "", " – " + turn.role + ", " + turn.model);
    const head = make("p", "turn-head", number + ". " + turn.agent, model);
    const meta = make("p", "turn-meta", facts.join(" · "));
    const error = turn.error === null ? null : bubble("error", "error", turn.error);
    return make("div", "turn", head, meta, old, ...messages.slice(same), ...outputs, error);
  };
  const trace = (outcome) => {
    const turns = outcome.turns;
    if (!turns.length) return null;
    const tokens = turns.reduce((sum, turn) => sum + turn.tokens, 0);
    const title = "Trace: " + plural(turns.length, "turn") + ", " + plural(tokens, "token");
    return folded(title, ...turns.map((turn, i) => turnView(turn, turns[i - 1], i + 1)));
  };
  const change = (outcome) => {
    const after = bubble("output", "After", outcome.answer || "(nothing)");
    return make("div", "change", bubble("", "Before", outcome.before || "(nothing)"), after);
  };
  const MARKS = new Map([[true, "✓"], [false, "✗"], [null, "?"]]);
  const stepView = (step) => {
    if (step.kind === "answer") return make("li", "step", bubble("", step.who, step.text || "(nothing)"));
    const critic = step.kind === "critic";
    const mood = critic ? " " + { true: "content", false: "unhappy", null: "unable" }[step.passed] : "";
    const sign = critic ? make("span", "sign", MARKS.get(step.passed)) : null;
    const who = step.kind === "end" ? null : make("b", "", step.who);
    const details = step.details ? make("small", "", step.details) : null;
    return make("li", "step " + step.kind + mood, sign, make("span", "", who, who ? " " : "", step.text, details));
  };
  const storyView = (steps) => make("ol", "story", ...steps.map(stepView));
  const outcomeView = (outcome) => {
    const arm = make("span", "arm", mark(outcome.arm), make("span", "", label(outcome.arm)));
    const stop = outcome.stop && outcome.stop !== "done" ? ", stopped: " + outcome.stop : "";
    const state = make("span", "state state-" + outcome.status, outcome.status + stop);
    return make(
      "section",
      "outcome",
      make("div", "outcome-head", arm, state),
      outcome.before === null ? make("p", "answer", outcome.answer || "no answer") : change(outcome),
      outcome.reason ? make("p", "why", outcome.reason) : null,
      pairs(outcome.grade),
      outcome.story.length ? storyView(outcome.story) : null,
      trace(outcome),
    );
  };
  const whole = new Map();
  let asked = null;
  const fetched = async (sample, button, byPointer) => {
    asked = sample;
    const address = source + "&" + new URLSearchParams({ id: sample.id });
    try {
      const reply = await fetch(address);
      const found = await reply.json();
      if (!reply.ok) throw new Error(found.error.message);
      whole.set(sample, found);
    } catch (error) {
      detail.replaceChildren(make("p", "why", "This sample cannot be shown: " + error.message));
      return;
    }
    if (asked === sample) open(sample, button, byPointer);
  };
  const open = (listed, button, byPointer) => {
    markCurrent(list, button);
    if (source && !whole.has(listed)) {
      fetched(listed, button, byPointer);
      return;
    }
    asked = listed;
    const sample = whole.get(listed) || listed;
    const metadata = pairs(sample.metadata);
    const content = [
      make("h3", "", sample.id),
      make("p", "sample-meta", sample.group + " · " + sample.kind),
      sample.context ? make("p", "asked", sample.context) : "",
      make("p", "asked question", sample.prompt),
      choices(sample) || "",
      metadata ? folded("Metadata", metadata) : "",
      ...sample.outcomes.map(outcomeView),
    ];
    showPane(detail, button, byPointer, ...content);
  };

  const distinct = (values) => [...new Set(values)].sort().map((value) => [value, value]);
  list.addEventListener("keydown", (event) => step(list, event, (button, place) => open(matching[place], button, false)));
  more.addEventListener("click", grow);
  if (source) {
    refresh();
    return;
  }
  offer(control("group"), distinct(data.samples.map((sample) => sample.group)));
  offer(control("status"), distinct(data.samples.flatMap((sample) => sample.outcomes.map((o) => o.status))));
  offer(control("arm"), data.arms.map((arm) => [arm.id, arm.label]));
  const form = control("search").closest("form");
  form.addEventListener("submit", (event) => event.preventDefault());
  control("search").addEventListener("input", refresh);
  for (const name of ["group", "status", "arm", "disagree"]) control(name).addEventListener("change", refresh);
  refresh();
})();
