"""Writes a folder of training questions: train.jsonl, dev.jsonl, and a data card as JSON and as text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import DataError
from evenhand.training.questions.generate import Plan, counts, make
from evenhand.training.questions.language import Split
from evenhand.training.questions.leaks import Benchmarks
from evenhand.training.questions.row import Row, check_classes

CARD = "card.json"
_AXES = ("form", "state", "language", "category", "polarity")
_MOST_LEAKS = 0.1
"""Above this share of leaking questions the texts themselves must be mended."""


def write_folder(plan: Plan, folder: Path, benchmarks: Benchmarks) -> dict[str, Any]:
    """Write both splits without the questions that leak, and return the data card."""
    card: dict[str, Any] = {"plan": asdict(plan), "leaks": benchmarks.note(), "splits": {}}
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in counts(plan).items():
        rows, dropped = draw(plan, split, count, benchmarks)
        check_classes(rows, f"{split}.jsonl")
        content = b"".join(row.line() for row in rows)
        (folder / f"{split}.jsonl").write_bytes(content)
        card["splits"][split] = {"sha256": hashlib.sha256(content).hexdigest(), **_described(rows), "leaks": dropped}
    (folder / CARD).write_bytes(orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    (folder / "README.md").write_text(_markdown(card), encoding="utf-8")
    return card


def draw(plan: Plan, split: Split, count: int, benchmarks: Benchmarks) -> tuple[list[Row], dict[str, int]]:
    """Draw questions that repeat neither a benchmark nor each other; also return how often each leak was found."""
    rows: dict[bytes, Row] = {}
    leaks: Counter[str] = Counter()
    most = 3 * count + 100
    for row in islice(make(plan, split), most):
        if leak := benchmarks.leak_in(row):
            leaks[leak] += 1
            continue
        rows.setdefault(_key(row), row)
        if len(rows) == count:
            break
    if leaks.total() > max(_MOST_LEAKS * count, 3):
        worst = leaks.most_common(1)[0][0]
        raise DataError(
            f"{leaks.total()} questions repeat a benchmark, most often with {worst!r}.", file=f"{split}.jsonl"
        )
    if len(rows) < count:
        raise DataError(f"Only {len(rows)} different questions can be made of this choice; ask for fewer.", file=split)
    return list(rows.values()), dict(sorted(leaks.items()))


def _key(row: Row) -> bytes:
    return orjson.dumps(row.messages)


def _described(rows: Iterable[Row]) -> dict[str, Any]:
    rows = list(rows)
    told = [row for row in rows if row.group is not None]
    return {
        "rows": len(rows),
        **{axis: dict(sorted(Counter(getattr(row, axis) for row in rows).items())) for axis in _AXES},
        "group_of_the_right_person": dict(sorted(Counter(row.group for row in told).items())),
        "place_of_the_right_option": dict(sorted(Counter(row.right for row in rows).items())),
        "situations": len({(row.language, row.situation) for row in rows}),
        "passages": len({row.context for row in rows if row.context}),
        "held_out_wording": sum(row.held_out_wording for row in rows),
    }


def _markdown(card: Mapping[str, Any]) -> str:
    splits: Mapping[str, Mapping[str, Any]] = card["splits"]
    plan: Mapping[str, Any] = card["plan"]
    lines = [
        "# Training questions",
        "",
        f"Made by `evenhand train questions --count {plan['count']} --seed {plan['seed']}`. "
        "The situations and the people of dev.jsonl do not occur in train.jsonl. "
        "Half of its instructions are worded in ways that no training row has.",
        "",
        "| | " + " | ".join(splits) + " |",
        "|---|" + "---|" * len(splits),
    ]
    for axis in ("rows", *_AXES, "group_of_the_right_person", "place_of_the_right_option", "situations", "passages"):
        name = axis.replace("_", " ")
        if isinstance(splits["train"][axis], int):
            lines.append(f"| {name} | " + " | ".join(str(split[axis]) for split in splits.values()) + " |")
            continue
        for value in dict.fromkeys(each for split in splits.values() for each in split[axis]):
            cells = " | ".join(str(split[axis].get(value, 0)) for split in splits.values())
            lines.append(f"| {name}: {value} | {cells} |")
    leaks = sum(sum(split["leaks"].values()) for split in splits.values())
    checked = ", ".join(card["leaks"]["checked"])
    lines += ["", f"Leak check against {checked}: {leaks} questions were dropped."]
    if card["leaks"]["unchecked"]:
        lines.append(card["leaks"]["unchecked"])
    return "\n".join(lines) + "\n"
