"""Everyday answers before and after a training, side by side: `answers.py TRAINED --out PAGE.html`.

TRAINED is the folder of `evenhand train verifiable`, which keeps the requests and replies of its forgetting suite.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from evenhand.show.page import Page, Part, opening, section
from evenhand.show.table import Table, columns, html_of

AREA = "everyday answers"


def replies(file: Path) -> dict[str, str]:
    rows = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return {row["request"]: row["reply"] for row in rows if row["area"] == AREA}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trained", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    before, after = (replies(given.trained / "evaluation" / f"forgetting-{each}.jsonl") for each in ("before", "sft"))
    words = [sum(len(each.split()) for each in part.values()) / len(part) for part in (before, after)]
    rows = [[request, before[request], after[request]] for request in before]
    about = f"{len(rows)} requests, greedy, at most 320 tokens; {words[0]:.0f} words before, {words[1]:.0f} after."
    table = Table("Everyday answers", columns("Request", "Before", "After", words=3), rows, cards=True)
    title = "Everyday answers before and after training on known answers"
    parts = [
        opening(title, "training", about),
        Part("answers", "Answers", section("answers", "Answers", "", html_of(table))),
    ]
    Page(title, parts).write(given.out)


if __name__ == "__main__":
    main()
