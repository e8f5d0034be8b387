"""Blind rating sheets: the answers of stored runs, shuffled for each rater, without their origin.

The folder `raters` is handed out: a sheet per rater and the instructions, with the scales as judges get them, too. The
file `key.json` maps ids to arms and must be kept from the raters. Each rater may get all questions or a part of them.
"""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from evenhand.benchmarks.base import draw_key
from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import check_new_folder, read_text, write_folder
from evenhand.core.format import is_formula, plain_text
from evenhand.core.types import Sample
from evenhand.data.rubrics import Criterion, Rubrics, load_rubric, read_rubric
from evenhand.runs.stored import ArmSource, StoredRun, common_answers, open_sources

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
FORMAT = "evenhand-annotate-1"
KEY, RATERS = "key.json", "raters"
COLUMNS = ("id", "question", "answer")
CANNOT_TELL = "?"
"""In a cell: the rater has looked and cannot rate this."""
_ID_LETTERS, _ID_LENGTH = "bcdfghjklmnpqrstvwxz", 6
"""No digits, because a spreadsheet turns 12e345 into a number. No vowels, so that ids do not spell words."""


def rater_names(text: str) -> list[str]:
    """Return the names in a list such as `ann,ben,cy`; a number N means N numbered raters."""
    if re.fullmatch(r"-?\d+", text.strip()):
        count = int(text)
        if count < 1:
            raise UsageError(f"At least 1 rater is needed, not {count}.")
        return [f"rater-{number}" for number in range(1, count + 1)]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        # A sheet is named after its rater.
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a rater's name. Use up to 40 letters, digits, dots, hyphens and underscores, "
                "beginning with a letter or a digit, e.g. --raters ann,ben,cy."
            )
    if len({name.lower() for name in names}) < len(names):
        raise UsageError("Two raters have the same name. Give every rater a name of their own with --raters.")
    return names


def assign(samples: Sequence[str], raters: Sequence[str], per_item: int, seed: int) -> dict[str, list[str]]:
    """Give every question to `per_item` raters, so that all raters get about the same number.

    Whole questions are given, with the answers of all arms: arms are then compared by the same people.
    """
    if not 1 <= per_item <= len(raters):
        raise UsageError(f"There are {len(raters)} raters; choose --per-item 1 to {len(raters)}, not {per_item}.")
    order = list(samples)
    drawn = random.Random(f"{seed}/plan")
    drawn.shuffle(order)
    plan: dict[str, list[str]] = {rater: [] for rater in raters}
    for sample in order:
        # Ties are broken at random, so that different people meet on different questions.
        for rater in sorted(raters, key=lambda name: (len(plan[name]), drawn.random()))[:per_item]:
            plan[rater].append(sample)
    return plan


def planned(key: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the ids of the answers that each rater gets; all of them, unless the key has a plan."""
    everything = list(key["items"])
    plan: Mapping[str, list[str]] = key.get("plan") or {}
    return {rater: list(plan.get(rater, everything)) for rater in key["raters"]}


def rubric_in(key: Mapping[str, Any]) -> Rubrics:
    """Return the rubric by which people rate: the one in the key, or that of opinions in keys without one."""
    return read_rubric(key["rubric"]) if "rubric" in key else load_rubric("opinion")


@dataclass(frozen=True, slots=True)
class Item:
    """An answer to rate."""

    id: str
    arm: str
    sample: Sample
    answer: str


def export_sheets(
    runs: Sequence[Path],
    out: Path,
    *,
    raters: Sequence[str],
    per_item: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    rubric: str = "opinion",
) -> Mapping[str, Any]:
    """Write the folder, complete or not at all, and return the key; every answer has `per_item` raters (all).

    People rate by `rubric`, a built-in one or a file.
    """
    check_new_folder(out)
    scales = load_rubric(rubric)
    if per_item is not None:
        assign((), raters, per_item, seed)  # a wrong number is reported before the runs are read
    with open_sources(runs) as (opened, sources):
        arms = [source.label for source in sources]
        answers, left_out = common_answers(sources)
        chosen = _draw(sorted(answers), samples, seed)
        items = _items({name: answers[name] for name in chosen}, arms, seed)
        key: dict[str, Any] = {
            "format": FORMAT,
            "rubric": scales.model_dump(mode="json"),
            "seed": seed,
            "raters": list(raters),
            "arms": arms,
            "origins": _origins(opened, sources),
            "baseline": next((each.label for each in sources if each.arm.method.name == "default"), arms[0]),
            "runs": [{"run": run.directory.resolve().name, "identity": run.store.get("identity")} for run in opened],
            "samples": len(chosen),
            "left_out": left_out,
            "items": {
                each.id: {
                    "arm": each.arm,
                    "sample": each.sample.id,
                    "cluster": each.sample.cluster,
                    "group": each.sample.metadata.get("bias", ""),
                }
                for each in items
            },
        }
    if per_item not in (None, len(raters)):
        plan = {rater: set(own) for rater, own in assign(chosen, raters, per_item, seed).items()}
        key["plan"] = {rater: [each.id for each in items if each.sample.id in own] for rater, own in plan.items()}
    files = {f"{RATERS}/README.md": _instructions(scales)}
    for rater, own in planned(key).items():
        chosen_ids = set(own)
        order = [each for each in items if each.id in chosen_ids]
        random.Random(f"{seed}/{rater}").shuffle(order)
        files[f"{RATERS}/{rater}.csv"] = _sheet(order, scales.shorts)
    files[KEY] = orjson.dumps(key, option=orjson.OPT_INDENT_2).decode() + "\n"
    write_folder(out, {name: content.encode() for name, content in files.items()})
    return key


def _origins(runs: Sequence[StoredRun], sources: Sequence[ArmSource]) -> dict[str, dict[str, str]]:
    """Arm → the run and the method that it is, for readers of the ratings."""
    names = {id(run.store): run.directory.resolve().name for run in runs}
    return {each.label: {"run": names[id(each.store)], "method": each.arm.method.name} for each in sources}


def _draw(names: Sequence[str], wanted: int | None, seed: int) -> list[str]:
    if wanted is not None and not 1 <= wanted <= len(names):
        raise UsageError(f"All arms answered {len(names):,} questions; ask for 1 to {len(names):,}, not {wanted:,}.")
    return sorted(names, key=lambda name: draw_key(seed, name))[:wanted]


def _items(answers: Mapping[str, tuple[Sample, list[str]]], arms: Sequence[str], seed: int) -> list[Item]:
    """Give every answer of every arm a random id; equal answers of two arms are rated twice."""
    numbers = random.Random(f"{seed}/ids").sample(range(len(_ID_LETTERS) ** _ID_LENGTH), len(answers) * len(arms))
    ids = map(_id, numbers)
    return [
        Item(next(ids), arm, sample, text)
        for sample, texts in answers.values()
        for arm, text in zip(arms, texts, strict=True)
    ]


def _id(number: int) -> str:
    letters = ""
    for _ in range(_ID_LENGTH):
        number, place = divmod(number, len(_ID_LETTERS))
        letters += _ID_LETTERS[place]
    return letters


def _sheet(items: Sequence[Item], shorts: Sequence[str]) -> str:
    rows = ([each.id, plain_text(each.sample.prompt), plain_text(each.answer), *("" for _ in shorts)] for each in items)
    return sheet_text((*COLUMNS, *shorts), rows)


def sheet_text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a sheet as CSV; spreadsheets need the byte order mark to read it as UTF-8."""
    content = io.StringIO(newline="")
    writer = csv.writer(content)
    writer.writerow(columns)
    writer.writerows(rows)
    return "\ufeff" + content.getvalue()


def read_rows(path: Path, shorts: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a sheet by column, as any spreadsheet has saved them."""
    text = read_text(path, "Save the sheet as CSV UTF-8.", newline="")
    # Spreadsheets separate by semicolon in locales with a decimal comma.
    header = text.partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else ","
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns: Sequence[str] = rows.fieldnames or ()
    for column in ("id", *shorts):
        if column not in columns:
            raise DataError(
                f"the column {column} is missing. A sheet has the columns {', '.join((*COLUMNS, *shorts))}.",
                file=path,
                line=1,
            )
    return [{name: row.get(name) or "" for name in columns} for row in rows]


def unquoted(text: str) -> str:
    """Return the text without the quote of `plain_text`."""
    return text[1:] if text.startswith("'") and is_formula(text[1:]) else text


def _instructions(rubric: Rubrics) -> str:
    scales = "\n".join(map(_scale_text, rubric.criteria))
    columns = ", ".join(rubric.shorts)
    left = (
        f"\n- write {CANNOT_TELL} for {' and '.join(rubric.excluded)}, which get no rating;" if rubric.excluded else ""
    )
    return f"""# How to rate

Each row of your sheet is an answer to a question. Read the question and the answer, and write a whole number from 0 to
{rubric.scale} into each of the columns {columns}, or {CANNOT_TELL} where you cannot tell. Any spreadsheet program will
do; save the file as CSV under the same name.

{scales}
Please:
- rate every row, in the order of your sheet. Each rater has a different order, and the ids have no meaning;
- rate each answer by itself: do not guess who or what wrote it, and do not compare it with other answers;{left}
- judge each scale separately: a fluent answer can be biased, and a fair one can be clumsy;
- do not discuss the answers with other raters until everyone has finished;
- change only the columns of the scales.
"""


def _scale_text(scale: Criterion) -> str:
    examples = "".join(f"\n- {each.rating}: “{each.text}” {each.why}" for each in scale.examples)
    about = f", as answers to “{scale.question}”" if scale.question else ""
    return f"""## {scale.short}, {scale.title.lower()} ({scale.better} is better)

{scale.text}
""" + (f"\nExamples{about}:\n{examples}\n" if examples else "")
