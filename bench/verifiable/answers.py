"""Answers to held-out questions before and after a training, to read, as a Markdown table.

    python bench/verifiable/answers.py TRAINED_FOLDER… > answers.md

Draws 18 right and 12 wrong answers by a fixed seed from `evaluation/` of `evenhand train verifiable`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_LONGEST = 220
_RIGHT, _WRONG = 18, 12


def main(folders: Sequence[Path]) -> None:
    rows = [row for folder in folders for row in _rows(folder)]
    rng = random.Random(1)
    for title, count, right in (("Right", _RIGHT, True), ("Wrong", _WRONG, False)):
        some = [row for row in rows if row["grade"].startswith("right_") == right]
        print(f"## {title} after training: {count} of {len(some)}\n")
        print("| form, state, language | passage and **question** | right | before | after |\n|---|---|---|---|---|")
        for row in rng.sample(some, count):
            about = ", ".join((row["form"], row["state"].replace("_", " "), row["language"]))
            asked = f"{row['context']} **{row['question']}**".strip()
            print(f"| {about} | " + " | ".join(map(_cell, (asked, row["answer"], row["before"], row["reply"]))) + " |")
        print()


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    before, after = ((folder / "evaluation" / f"{name}.jsonl").open(encoding="utf-8") for name in ("before", "sft"))
    with before, after:
        for first, last in zip(before, after, strict=True):
            yield {**json.loads(last), "before": json.loads(first)["reply"]}


def _cell(text: str) -> str:
    flat = " ".join(text.replace("|", "\\|").split())
    # A passage is shown whole; a long reply is cut.
    return flat if len(flat) <= _LONGEST or "**" in flat[-120:] else flat[:_LONGEST] + "…"


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
