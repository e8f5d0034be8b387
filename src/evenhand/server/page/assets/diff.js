// A word diff of two texts, optimised for reading rather than for the fewest changes.

const MOST_CELLS = 12_000_000;
const words = new Intl.Segmenter("en", { granularity: "word" });
const letters = (text) => text.replace(/[^\p{L}\p{N}]/gu, "").length;

const split = (text) => Array.from(words.segment(text), (part) => part.segment);

/** Lengths of the longest common subsequences of all endings of `a` and `b`, row by row. */
const lengths = (a, b) => {
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const here = i * width + j;
      table[here] = a[i] === b[j] ? table[here + width + 1] + 1 : Math.max(table[here + width], table[here + 1]);
    }
  }
  return table;
};

const compare = (a, b) => {
  if (a.length * b.length > MOST_CELLS) return [["removed", a.join("")], ["added", b.join("")]];
  const table = lengths(a, b);
  const width = b.length + 1;
  const steps = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      steps.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) {
      steps.push(["removed", a[i++]]);
    } else {
      steps.push(["added", b[j++]]);
    }
  }
  return steps;
};

/** Merge neighbours of the same kind; within a change, removed text precedes added text. */
const merged = (steps) => {
  const runs = [];
  let change = { removed: "", added: "" };
  const close = () => {
    for (const kind of ["removed", "added"]) if (change[kind]) runs.push([kind, change[kind]]);
    change = { removed: "", added: "" };
  };
  for (const [kind, text] of steps) {
    if (kind !== "same") {
      change[kind] += text;
      continue;
    }
    close();
    if (runs.length && runs.at(-1)[0] === "same") runs.at(-1)[1] += text;
    else runs.push(["same", text]);
  }
  close();
  return runs;
};

/** One or two unchanged words between two changes are easier to read as part of them. */
const smoothed = (runs) =>
  runs.flatMap(([kind, text], i) => {
    const between = i > 0 && i < runs.length - 1;
    if (kind !== "same" || !between || letters(text) > 3 || text.includes("\n")) return [[kind, text]];
    return [["removed", text], ["added", text]];
  });

/** The changes from `before` to `after` as [kind, text], where kind is same, removed or added. */
export const diff = (before, after) => {
  const a = split(before);
  const b = split(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const middle = compare(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const whole = [["same", a.slice(0, start).join("")], ...middle, ["same", a.slice(a.length - end).join("")]];
  return merged(smoothed(merged(whole.filter(([, text]) => text))));
};

/** The unchanged share of the longer text, from 0 to 1, counted in letters. */
export const likeness = (runs) => {
  const sizes = { same: 0, removed: 0, added: 0 };
  for (const [kind, text] of runs) sizes[kind] += letters(text);
  const longer = sizes.same + Math.max(sizes.removed, sizes.added);
  return longer ? sizes.same / longer : 1;
};
