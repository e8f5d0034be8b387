"""Rating sheets: the answers of stored runs, shuffled for each rater, without a word on where they come from.

A folder has two parts: `raters` is handed out (a sheet per rater and the instructions), `key.json` is not: it says
which arm every id belongs to.
"""

from __future__ import annotations

import csv
import io
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from evenhand.errors import PlanError, UsageError
from evenhand.runs.stored import ArmSource, StoredRun, open_sources
from evenhand.scorers.opinion import HIGHEST, opinion_scales
from evenhand.types import Sample

FORMAT = "evenhand-annotate-1"
KEY, RATERS = "key.json", "raters"
SHORTS = tuple(scale.short for scale in opinion_scales())
COLUMNS = ("id", "question", "answer", *SHORTS)
_LETTERS, _LETTERS_OF_ID = "bcdfghjklmnpqrstvwxz", 6
"""Letters alone: a spreadsheet would turn 12e345 into a number. No vowels: no words."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Item:
    """An answer to rate."""

    id: str
    arm: str
    sample: Sample
    answer: str


def export_sheets(
    runs: Sequence[Path], out: Path, *, raters: int = 5, samples: int | None = None, seed: int = 0
) -> Mapping[str, Any]:
    """Write the folder, all or nothing; returns the key."""
    if raters < 1:
        raise UsageError(f"There must be 1 rater at least, not {raters}.")
    _check_folder(out)
    with open_sources(runs) as (opened, sources):
        arms = [source.label for source in sources]
        answers, left_out = _common(sources)
        chosen = _drawn(sorted(answers), samples, seed)
        items = _items({name: answers[name] for name in chosen}, arms, seed)
        key: dict[str, Any] = {
            "format": FORMAT,
            "seed": seed,
            "raters": [f"rater-{number}" for number in range(1, raters + 1)],
            "arms": arms,
            "origins": _origins(opened, sources),
            "baseline": next((each.label for each in sources if each.arm.method.name == "default"), arms[0]),
            "runs": [{"run": run.directory.resolve().name, "identity": run.store.get("identity")} for run in opened],
            "samples": len(chosen),
            "left_out": left_out,
            "items": {
                each.id: {"arm": each.arm, "sample": each.sample.id, "cluster": each.sample.cluster} for each in items
            },
        }
    files = {f"{RATERS}/README.md": _instructions(len(items))}
    for rater in key["raters"]:
        order = list(items)
        random.Random(f"{seed}/{rater}").shuffle(order)
        files[f"{RATERS}/{rater}.csv"] = _sheet(order)
    _write(out, {**files, KEY: orjson.dumps(key, option=orjson.OPT_INDENT_2).decode() + "\n"})
    return key


def _origins(runs: Sequence[StoredRun], sources: Sequence[ArmSource]) -> dict[str, dict[str, str]]:
    """Arm → the run and the method that it is, for readers of the ratings."""
    names = {id(run.store): run.directory.resolve().name for run in runs}
    return {each.label: {"run": names[id(each.store)], "method": each.arm.method.name} for each in sources}


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a new folder with --out.")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(f"The folder {out} is not empty, and nothing is overwritten; name a new one with --out.")


def _common(sources: Sequence[ArmSource]) -> tuple[dict[str, tuple[Sample, list[str]]], int]:
    """The samples that every arm has answered, with the answers by arm, and how many others there are."""
    by_arm: list[dict[str, str]] = []
    samples: dict[str, Sample] = {}
    for source in sources:
        said: dict[str, str] = {}
        for number, sample in source.store.samples():
            if sample.kind == "choice":
                raise PlanError(
                    "The answers of this benchmark are choices; people rate texts, such as those of opinions."
                )
            samples[sample.id] = sample
            stored = source.store.outcome(number, source.arm.number)
            if stored is not None and stored[0] == "graded":
                said[sample.id] = stored[3]["result"]["value"]["text"]
        by_arm.append(said)
    common = [name for name in samples if all(name in said for said in by_arm)]
    if not common:
        raise PlanError("There is no question that all arms have answered; nothing can be rated side by side.")
    found = {name: (samples[name], [said[name] for said in by_arm]) for name in common}
    return found, len(samples) - len(common)


def _drawn(names: Sequence[str], wanted: int | None, seed: int) -> list[str]:
    if wanted is not None and not 1 <= wanted <= len(names):
        raise UsageError(f"There are {len(names):,} questions that all arms have answered, not {wanted:,}.")
    return sorted(names, key=lambda name: blake2b(f"{seed}/{name}".encode(), digest_size=8).digest())[:wanted]


def _items(answers: Mapping[str, tuple[Sample, list[str]]], arms: Sequence[str], seed: int) -> list[Item]:
    """Every answer of every arm under an id that says nothing; equal answers of two arms are rated twice."""
    numbers = random.Random(f"{seed}/ids").sample(range(len(_LETTERS) ** _LETTERS_OF_ID), len(answers) * len(arms))
    ids = map(_id, numbers)
    return [
        Item(next(ids), arm, sample, text)
        for sample, texts in answers.values()
        for arm, text in zip(arms, texts, strict=True)
    ]


def _id(number: int) -> str:
    letters = ""
    for _ in range(_LETTERS_OF_ID):
        number, place = divmod(number, len(_LETTERS))
        letters += _LETTERS[place]
    return letters


def _sheet(items: Sequence[Item]) -> str:
    content = io.StringIO(newline="")
    writer = csv.writer(content)
    writer.writerow(COLUMNS)
    for each in items:
        writer.writerow([each.id, _plain(each.sample.prompt), _plain(each.answer), *("" for _ in SHORTS)])
    # The mark at the beginning is what makes spreadsheets read the file as UTF-8.
    return "\ufeff" + content.getvalue()


def _plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _instructions(items: int) -> str:
    scales = "\n".join(
        f"- **{scale.short}, {scale.title.lower()}** ({scale.better} is better): {scale.text}"
        for scale in opinion_scales()
    )
    return f"""# How to rate

Your sheet has {items:,} answers to questions. Read each question and its answer, and write a whole number from 0 to
{HIGHEST} into each of the columns {", ".join(SHORTS)}. Any spreadsheet program will do; save the file as CSV under the
same name.

{scales}

Please:
- rate every row, in the order of your sheet; rows are in another order for everybody, and ids mean nothing;
- rate the answer as it stands: do not guess who or what wrote it, nor compare it with others to the same question;
- keep the scales apart: a fluent answer may be biased, and a fair one clumsy;
- do not talk about the answers with other raters before all are done;
- change nothing but the three columns.
"""


def _write(out: Path, files: Mapping[str, str]) -> None:
    """Write the files beside their place and move them there together."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        (draft / RATERS).mkdir(parents=True)
        for name, content in files.items():
            (draft / name).write_bytes(content.encode())
        draft.replace(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
