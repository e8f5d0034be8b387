"""The questions of a training: generated, or the user's rows, checked before the first step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Message, Role
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.questions.folder import draw, load_benchmarks, write_folder
from evenhand.training.questions.generate import QuestionPlan
from evenhand.training.questions.grading import grade
from evenhand.training.questions.language import LANGUAGES
from evenhand.training.questions.row import FORMS, QuestionRow, check_classes, read_rows

_HELD_OUT_SHARE = 10
"""One situation in N is held out if the file has no held-out part."""
_MAX_HELD_OUT = 1000
_OTHER_SEED = 1 << 32
"""Added to the seed for questions that the fine-tuning has not seen."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Rows to train on, other rows for RL, held-out rows, and what is known about them."""

    train: Sequence[QuestionRow]
    rl: Sequence[QuestionRow]
    dev: Sequence[QuestionRow]
    card: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def checksums(self) -> dict[str, str]:
        """Return the sha256 of each part, to check the data on resume."""
        parts = {"train": self.train, "rl": self.rl, "dev": self.dev}
        return {name: hashlib.sha256(b"".join(row.line() for row in rows)).hexdigest() for name, rows in parts.items()}


def prompt_of(row: QuestionRow) -> Prompt:
    return tuple(Message(cast(Role, each["role"]), each["content"]) for each in row.messages)


def generated_questions(
    folder: Path, *, count: int, rl_count: int, forms: Sequence[str], languages: Sequence[str], seed: int
) -> Questions:
    """Generate questions into a folder; the questions for RL are new ones about the same situations."""
    plan = QuestionPlan(count, seed, tuple(forms) or FORMS, tuple(languages) or LANGUAGES)
    benchmarks = load_benchmarks()
    card = write_folder(plan, folder, benchmarks)
    rl, _ = draw(replace(plan, seed=seed + _OTHER_SEED), "train", rl_count, benchmarks) if rl_count else ([], {})
    return Questions(read_rows(folder / "train.jsonl"), rl, read_rows(folder / "dev.jsonl"), card)


def own_questions(data: Path, *, count: int | None, forms: Sequence[str], languages: Sequence[str] = ()) -> Questions:
    """Read the user's rows: one file, part of which is held out, or a folder.

    A folder has train.jsonl and dev.jsonl, and may have rl.jsonl; without it, RL asks the training rows again.
    """
    rl: list[QuestionRow] = []
    if data.is_dir():
        train, dev = (read_rows(data / f"{split}.jsonl") for split in ("train", "dev"))
        rl = read_rows(data / "rl.jsonl") if (data / "rl.jsonl").is_file() else []
    else:
        everything = read_rows(data)
        train = [row for row in everything if not _is_held_out(row)]
        dev = [row for row in everything if _is_held_out(row)]
        if not train or not dev:
            raise DataError("There are too few situations to hold some out; add more.", file=data)
    for name, wanted in (("form", forms), ("language", languages)):
        train, dev, rl = (_chosen(each, name, wanted, data) if each else [] for each in (train, dev, rl))
    train, dev = train[:count], dev[:_MAX_HELD_OUT]
    check_classes(train, str(data))
    _check_answers([*train, *rl, *dev], data)
    return Questions(train, rl or train, dev, {"leaks": _check_leaks([*train, *rl, *dev], data)})


def check_spelling(rows: Sequence[QuestionRow], chat: Chat, model: str) -> None:
    """Raise UsageError if a letter or number is not one token of its own: its probability could not be read.

    Korean answers yes in one character, which is a word and need not be a token.
    """
    known: dict[str, int] = chat.tokenizer.get_vocab()
    unknown = known.get(chat.tokenizer.unk_token or "")
    for answer, form in {row.answer: row.form for row in rows if len(row.answer) == 1 and row.answer.isascii()}.items():
        tokens = chat.tokenizer(answer, add_special_tokens=False)["input_ids"]
        if len(tokens) != 1 or tokens[0] == unknown:
            raise UsageError(
                f"The tokenizer of {model} cannot spell {answer!r} in one token, which the form {form} needs; choose "
                "other --forms."
            )


def _chosen(rows: Sequence[QuestionRow], field: str, wanted: Sequence[str], data: Path) -> list[QuestionRow]:
    """Return the rows with a wanted form or language; all rows if none is named."""
    known = sorted({getattr(row, field) for row in rows})
    for value in wanted:
        if value not in known:
            raise DataError(f"No row has the {field} {value!r}; there are {', '.join(known)}.", file=data)
    return [row for row in rows if not wanted or getattr(row, field) in wanted]


def _check_answers(rows: Sequence[QuestionRow], data: Path) -> None:
    """Raise DataError if the answer that a row teaches would itself be graded as wrong."""
    for row in rows:
        if not (found := grade(row, row.answer)).right:
            raise DataError(
                f"The answer {row.answer!r} to {row.question or row.messages[-1]['content']!r} is graded "
                f"{found.value.replace('_', ' ')}; its form, options, marks, people and right do not fit together.",
                file=data,
            )


def _is_held_out(row: QuestionRow) -> bool:
    return hashlib.sha256(row.situation.encode()).digest()[0] % _HELD_OUT_SHARE == 0


def _check_leaks(rows: Sequence[QuestionRow], data: Path) -> dict[str, Any]:
    check = load_benchmarks()
    for row in rows:
        if leak := check.leak_in(row):
            raise DataError(
                f"A row contains text of BBQ ({leak!r}), and a benchmark must not be trained on; remove it.", file=data
            )
    return check.note()
