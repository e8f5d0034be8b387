"""Tables and curves from the files that `run.py --out` wrote.

    python bench/verifiable/table.py NAME=FILE[+FILE…] [NAME=…]          # a Markdown table, a column for each name
    python bench/verifiable/table.py --curve CURVE.svg STEP=FILE […]    # right answers over the steps of a training
    python bench/verifiable/table.py --errors FILE…                      # which free answers name the wrong person
    python bench/verifiable/table.py --paired BEFORE AFTER…              # differences on the same questions
    python bench/verifiable/table.py --suite TRAINED…                    # what several trainings forgot together

`--paired` also takes files of `evaluation/` of a training. Several files, or trainings, are taken together.

Pairs are ambiguous / disambiguated, or what the row says.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evenhand.stats.intervals import Interval, mean_interval
from evenhand.training.forgetting import compared, probes
from evenhand.training.questions.grading import ReplyGrade

Found = dict[str, Any]
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 300, 44, 190, 16, 40
_SHORT = 5
"""A sum that is answered in as many words at most is answered without its steps."""
_COLOURS = ("#1f77b4", "#7fb2d9", "#d9480f", "#f0a070")


def _with_interval(value: Found) -> str:
    return f"{value['percent']} [{value['low']:.0f}, {value['high']:.0f}]"


def _pair(part: Found, first: str = "ambig", second: str = "disambig") -> str:
    return f"{part[first]['percent']} / {part[second]['percent']}"


ROWS: dict[str, Callable[[Found], str]] = {
    "BBQ, letters, mean of 3 orders, ambiguous": lambda f: _with_interval(f["bbq"]["three orders"]["ambig"]),
    "… disambiguated": lambda f: _with_interval(f["bbq"]["three orders"]["disambig"]),
    "… one order": lambda f: _pair(f["bbq"]["one order"]),
    "… questions with “not”": lambda f: _pair(f["bbq"]["negated"], "negated/ambig", "negated/disambig"),
    "BBQ in one sentence, ambiguous": lambda f: _with_interval(f["free"]["wording 1"]["right"]["ambig"]),
    "… disambiguated ": lambda f: _with_interval(f["free"]["wording 1"]["right"]["disambig"]),
    "… second wording": lambda f: _pair(f["free"]["wording 2"]["right"]),
    "… third wording": lambda f: _pair(f["free"]["wording 3"]["right"]),
    "EsBBQ, letters": lambda f: _pair(f["es"]["three orders"]),
    "CaBBQ, letters": lambda f: _pair(f["ca"]["three orders"]),
    "KoBBQ, letters": lambda f: _pair(f["ko"]["three orders"]),
    "SQuAD v2, answerable: F1": lambda f: f"{f['squad']['answerable: f1']:.1f}",
    "… the reply contains the answer": lambda f: _with_interval(
        f["squad"]["answerable: the reply contains the answer"]
    ),
    "… abstains wrongly / rightly": lambda f: _pair(f["squad"], "answerable: abstained", "unanswerable: abstained"),
    "difference awareness: right where groups differ": lambda f: _with_interval(f["difference"]["right"]["different"]),
    "… right where they are equal": lambda f: _with_interval(f["difference"]["right"]["equal"]),
    "… answers “both alike”, where they differ / are equal": lambda f: _pair(
        f["difference"]["treats alike"], "different", "equal"
    ),
    "loss on encyclopaedia paragraphs": lambda f: f"{f['loss']['nats per token']:.3f}",
    "DiscrimEval: mean log-odds of yes; largest gap of race means": lambda f: (
        f"{f['decisions']['mean log-odds of yes']:.2f}; {f['decisions']['race']['largest gap']:.2f}"
    ),
    "CrowS-Pairs: stereotype is likelier": lambda f: _with_interval(f["crows"]["stereotype is likelier"]),
    "RealToxicityPrompts: mean toxicity (`builtin`)": lambda f: f"{f['toxicity']['builtin']['mean']:.3f}",
}


def table(columns: dict[str, Found]) -> str:
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, show in ROWS.items():
        cells = [_cell(show, found) for found in columns.values()]
        if any(cells):
            lines.append(f"| {name.strip()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(show: Callable[[Found], str], found: Found) -> str:
    try:
        return show(found)
    except KeyError:  # not measured
        return ""


def curve(points: dict[int, Found]) -> str:
    """An SVG with four lines: letters and sentences, ambiguous and disambiguated."""
    lines = {
        "letters, ambiguous": lambda f: f["bbq"]["three orders"]["ambig"],
        "sentence, ambiguous": lambda f: f["free"]["wording 1"]["right"]["ambig"],
        "letters, disambiguated": lambda f: f["bbq"]["three orders"]["disambig"],
        "sentence, disambiguated": lambda f: f["free"]["wording 1"]["right"]["disambig"],
    }
    last = max(points)

    def x(step: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * step / last, 1)

    def y(percent: float) -> float:
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - percent / 100), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img" aria-label="Right answers on BBQ over the steps of the training">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for percent in range(0, 101, 20):
        parts.append(f'<path d="M{_LEFT} {y(percent)}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(percent) + 4}" text-anchor="end">{percent}</text>')
    for step in sorted(points):
        parts.append(f'<text x="{x(step)}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{x(last / 2)}" y="{_HEIGHT - 6}" text-anchor="middle">steps</text>')
    labels: list[float] = []
    for (name, value), colour in zip(lines.items(), _COLOURS, strict=True):
        values = [(x(step), y(value(points[step])["percent"])) for step in sorted(points)]
        parts.append(f'<polyline points="{_joined(values)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>' for cx, cy in values]
        label = values[-1][1] + 4
        while any(abs(label - other) < 14 for other in labels):
            label += 14
        labels.append(label)
        parts.append(f'<text x="{values[-1][0] + 10}" y="{label}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def errors(replies: Sequence[Found]) -> str:
    """Verdicts on free answers to disambiguated questions, by what their passage and question look like."""
    told = [reply for reply in replies if reply["condition"] == "disambig"]
    lines = ["| | n | right | wrong person | abstains |", "|---|---|---|---|---|"]
    for name, key in (("the right person is mentioned", _place), ("the question has", _negation)):
        for value in dict.fromkeys(map(key, told)):
            verdicts = [reply["verdict"] for reply in told if key(reply) == value]
            shares = [f"{100 * verdicts.count(each) / len(verdicts):.0f}" for each in ("right", "wrong", "abstained")]
            lines.append(f"| {name} {value} | {len(verdicts)} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def paired(before: Found, after: Sequence[Found]) -> str:
    """Differences of the share of right answers, AFTER minus BEFORE, in points with 95 % intervals.

    Questions in the same words are of one template, so they are a cluster; so are those about one situation.
    """
    lines = ["| | n | gained | lost | difference |", "|---|---|---|---|---|"]
    old, trained = _graded(before), [_graded(each) for each in after]
    for name in (name for name in old if all(name in new for new in trained)):
        changes: list[int] = []
        for new in trained:
            if [key for key, _ in old[name]] != [key for key, _ in new[name]]:
                raise SystemExit(f"{name}: these are not the same questions; measure all with one --seed and --scale.")
            changes += [int(b) - int(a) for (_, a), (_, b) in zip(old[name], new[name], strict=True)]
        found = mean_interval(changes, [key[0] for key, _ in old[name]] * len(trained), bounds=(-1, 1))
        counts = f"{len(changes)} | {changes.count(1)} | {changes.count(-1)}"
        lines.append(f"| {name} | {counts} | {_change(found, 100)} |")
    return "\n".join(lines)


def _change(found: Interval, scale: int = 1) -> str:
    numbers = (found.estimate, found.low, found.high)
    change, low, high = (f"{scale * each:+.1f}" if each is not None else "?" for each in numbers)
    return f"{change} [{low}, {high}]"


def suite(folders: Sequence[Path]) -> str:
    """What the trainings in these folders forgot together; of sums, by how the steps are asked for."""
    options = [json.loads((folder / "training.json").read_text())["options"] for folder in folders]
    asked = [probe for each in options for probe in probes(each["seed"], each["probes"])]
    rows = [
        [row for folder in folders for row in _rows(folder / "evaluation" / f"forgetting-{name}.jsonl")]
        for name in ("before", "sft")
    ]
    if any([row["request"] for row in each] != [probe.request for probe in asked] for each in rows):
        raise SystemExit("These are not the requests of the present suite; use the code that trained the models.")
    before, after = ([row["reply"] for row in each] for each in rows)
    replies = list(zip(asked, before, after, strict=True))
    lines = ["| | before | after | change, 98 % interval over kinds | 95 % over requests |", "|---|---|---|---|---|"]
    for each in compared(asked, ("before", before), ("after", after), limit=2.0).changes:
        rows = [row for row in replies if row[0].area == each.area and row[0].check]
        moved = [int(probe.check(b)) - int(probe.check(a)) for probe, a, b in rows]
        asked_in = [probe.request for probe, _, _ in rows]  # some requests are the same in each training
        single = _change(mean_interval(moved, asked_in, bounds=(-1, 1)), 100) if rows else ""
        lines.append(f"| {each.area} | {each.before:.1f} | {each.after:.1f} | {_change(each.difference)} | {single} |")
    sums = [row for row in replies if row[0].area == "arithmetic"]
    endings = [re.split(r"(?<=[.?]) ", probe.request)[-1] for probe, _, _ in sums]
    for ending in sorted(set(endings)):
        rows = [row for row, its in zip(sums, endings, strict=True) if its == ending]
        right = [[probe.check is not None and probe.check(said) for said in both] for probe, *both in rows]
        short = [[len(said.split()) <= _SHORT for said in both] for _, *both in rows]
        counts = [" | ".join(str(sum(column)) for column in zip(*each, strict=True)) for each in (right, short)]
        lines.append(f"| right of {len(rows)} sums: {ending} | {counts[0]} | without steps: {counts[1]} |")
    return "\n".join(lines)


def _graded(found: Found) -> dict[str, list[tuple[tuple[str, ...], bool]]]:
    """Each question, its template first, and whether its answer was right, by set and condition."""
    rows: dict[str, list[tuple[tuple[str, ...], bool]]] = {}
    for name, part in found.items():
        answers = part.get("answers", []) + part.get("replies", []) if isinstance(part, dict) else []
        for each in answers:
            wording = f" wording {each['wording'] + 1}" if "wording" in each else ""
            chosen = each.get("chosen", each.get("three orders"))
            right = each["verdict"] == "right" if "verdict" in each else chosen == each["right"]
            # Without the options, which follow in further lines.
            cluster = each.get("situation") or f"{each['category']}/{each['question'].partition(chr(10))[0]}"
            key = (cluster, each["question"], each["context"])
            rows.setdefault(f"{name}{wording}, {each['condition']}", []).append((key, right))
    return rows


def _negation(reply: Found) -> str:
    return "not, n't or never" if re.search(r"\bnot\b|n't|never", reply["question"]) else "none of these"


def _place(reply: Found) -> str:
    """Where the first word of the right option stands last, compared with that of the other one."""
    words = {
        place: re.sub(r"^the ", "", option.lower()).split(",")[0].split()[0]
        for place, option in enumerate(reply["options"])
        if place != reply["unknown"]
    }
    last = {place: reply["context"].lower().rfind(word) for place, word in words.items()}
    if min(last.values()) < 0:
        return "in other words"
    return "last" if last[reply["right"]] == max(last.values()) else "first"


def _joined(values: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a},{b}" for a, b in values)


def _read(files: str) -> Found:
    found: Found = {}
    for file in files.split("+"):
        found |= _evaluation(Path(file)) if file.endswith(".jsonl") else json.loads(Path(file).read_text())
    return found


def _evaluation(file: Path) -> Found:
    """A file of `evaluation/` in the shape of a set."""
    graded = [
        {**row, "condition": "greedy", "verdict": "right" if ReplyGrade(row["grade"]).right else "wrong"}
        for row in _rows(file)
    ]
    return {"held-out questions": {"replies": graded}}


def _rows(file: Path) -> list[Found]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
    elif arguments[0] == "--curve":
        points = {int(step): _read(files) for step, _, files in (each.partition("=") for each in arguments[2:])}
        Path(arguments[1]).write_text(curve(points))
    elif arguments[0] == "--errors":
        print(errors([reply for file in arguments[1:] for reply in _read(file)["free"]["replies"]]))
    elif arguments[0] == "--paired":
        print(paired(_read(arguments[1]), [_read(each) for each in arguments[2:]]))
    elif arguments[0] == "--suite":
        print(suite([Path(each) for each in arguments[1:]]))
    else:
        print(table({name: _read(files) for name, _, files in (each.partition("=") for each in arguments)}))


if __name__ == "__main__":
    main(sys.argv[1:])
