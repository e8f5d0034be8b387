"""Pairs for DPO from the questions of `evenhand train questions`: the right answer against another option.

    python bench/verifiable/preferences.py QUESTIONS_FOLDER PAIRS.jsonl

For a comparison with training on the right answers alone. Rows whose answer is reasoning are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import orjson

from evenhand.training.questions.row import QuestionRow, read_rows

NOT_TOLD = {"en": "It is not told.", "es": "No se dice.", "de": "Das wird nicht gesagt."}


def wrong_answer(row: QuestionRow, rng: Random) -> str:
    other = rng.choice([i for i in range(len(row.options)) if i != row.right])
    if row.form in ("sentence", "short"):
        return NOT_TOLD[row.language] if other == row.unknown else f"{row.options[other]}."
    shown = row.marks[other] if row.marks else row.options[other]
    if row.form == "json":
        return orjson.dumps({"answer": shown}).decode()
    return shown


def main(folder: Path, out: Path) -> None:
    rng = Random(0)
    with out.open("wb") as file:
        for row in read_rows(folder / "train.jsonl"):
            if row.form == "cot" or row.answer.startswith('{"answerable"'):
                continue
            answers = (row.answer, wrong_answer(row, rng))
            chosen, rejected = ([{"role": "assistant", "content": text}] for text in answers)
            file.write(orjson.dumps({"prompt": row.messages, "chosen": chosen, "rejected": rejected}) + b"\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
