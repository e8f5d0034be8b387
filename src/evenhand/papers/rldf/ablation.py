"""Ablations of RLDF: one training for each value of a parameter, all evaluated on the same topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from evenhand.core.errors import UsageError
from evenhand.papers.base import PaperOptions, PaperRun
from evenhand.papers.rldf.arms import BASE, DEFAULT
from evenhand.papers.rldf.runs import opinions_run
from evenhand.papers.rldf.training import ROLES, ROUNDS, Lesson, Making, debates_run

FOLDER = "ablate"
Values = Mapping[str, Sequence[int]]
"""Parameter → values."""


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of the parameters."""

    roles: int
    rounds: int
    topics: int
    pairs: int | None = None
    """Number of training pairs; None for all."""

    @property
    def debates(self) -> str:
        return f"roles{self.roles}-rounds{self.rounds}-topics{self.topics}"

    @property
    def name(self) -> str:
        return self.debates + ("" if self.pairs is None else f"-pairs{self.pairs}")

    @classmethod
    def named(cls, name: str) -> Point | None:
        """Parses the name of a point; None for the untrained model."""
        found = re.fullmatch(r"roles(\d+)-rounds(\d+)-topics(\d+)(?:-pairs(\d+))?", name)
        return cls(*(None if each is None else int(each) for each in found.groups())) if found else None  # pyright: ignore[reportArgumentType]


PARAMETERS = tuple(each.name for each in fields(Point))


def read_values(texts: Iterable[str]) -> Values:
    """Parses PARAMETER=VALUE,VALUE,… to parameter → values."""
    found: dict[str, Sequence[int]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        numbers = values.split(",")
        if not all(re.fullmatch(r"\d+", each) for each in numbers):
            raise _bad_values(text)
        found[name] = [int(each) for each in numbers]
    return checked_values(found)


def checked_values(values: Values) -> Values:
    """Returns the values of each parameter, sorted and without duplicates; rejects invalid ones."""
    for name, numbers in values.items():
        if name not in PARAMETERS or len(set(numbers)) < 2 or min(numbers) < 1:
            raise _bad_values(f"{name}={','.join(map(str, numbers))}")
    return {name: tuple(sorted(set(numbers))) for name, numbers in values.items()}


def _bad_values(text: str) -> UsageError:
    return UsageError(
        f"--ablate takes {', '.join(PARAMETERS)} with two or more values, e.g. rounds=1,3,5, not {text!r}."
    )


def points(making: Making, values: Values) -> list[Point]:
    """Returns the points that vary one parameter at a time, without duplicates."""
    wanted = making.of("debate")
    centre = Point(wanted.get("roles", ROLES), wanted.get("rounds", ROUNDS), making.topics)
    for each in values.get("topics", ()):
        if not 1 < each <= making.topics:
            raise UsageError(f"There are topics for 2 to {making.topics:,} debates of each type, not for {each:,}.")
    return list(dict.fromkeys(replace(centre, **{name: value}) for name, each in values.items() for value in each))


def ablation(making: Making, values: Values) -> dict[str, dict[Point, Lesson]]:
    """Returns type of bias → point → its training; as in the paper, each training is on one type."""
    wanted = points(making, values)
    return {bias: {point: _lesson(making.about(bias), bias, point) for point in wanted} for bias in making.biases}


def _lesson(making: Making, bias: str, point: Point) -> Lesson:
    within = f"{FOLDER}/{bias}"
    teacher = {"teacher": making.teacher} if making.teacher else {}
    roles, rounds, topics, part = astuple(point)
    run = debates_run(
        making, f"{within}/debates/{point.debates}", specs=teacher, roles=roles, rounds=rounds, topics=topics
    )
    return Lesson(run, f"{within}/pairs/{point.debates}", f"{within}/models/{point.name}", part)


def ablation_runs(options: PaperOptions, found: Mapping[str, Mapping[Point, Lesson]], out: Path) -> list[PaperRun]:
    """Returns the opinion runs of the untrained model and of every trained one, by type of bias."""
    runs: list[PaperRun] = []
    for bias, lessons in found.items():
        about = replace(options, bias=(bias,))
        within = f"{FOLDER}/{bias}/opinions"
        runs.append(opinions_run(about, f"{within}/{BASE}", (DEFAULT,)))
        for point, each in lessons.items():
            models = {"base": options.reached_alike(f"hf/{out / each.models / 'ppo'}")}
            runs.append(opinions_run(about, f"{within}/{point.name}", (DEFAULT,), models))
    return runs
