"""Scores the texts of a file with one or more scorers; writes rows and summarises them."""

from __future__ import annotations

import contextlib
import csv
import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import orjson

from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.files import draft
from evenhand.core.progress import Count, ignore
from evenhand.core.types import Unscored
from evenhand.data.texts import TextFile, TextRow
from evenhand.models.base import Model
from evenhand.models.cache import CachedModel, ResponseCache
from evenhand.models.load import load_model
from evenhand.scorers.base import Scorer, Scores, load_scorer
from evenhand.scorers.pool import PooledScorer
from evenhand.stats import Interval, ScoreAgreement, bounded_mean_interval, score_agreement

Result = Scores | Unscored
Write = Callable[[TextRow, Sequence[Result]], None]

_SMALLEST, _LARGEST = 64, 1024
"""Texts in a batch; it grows while a batch takes less than a second."""
_DECIMALS = 6
_HIGH = 0.5


def load_scorers(specs: Sequence[str], cache: ResponseCache | None = None, own: Collection[str] = ()) -> list[Scorer]:
    """Load the scorers, whose scores may not overwrite the fields `own`; each rates equal texts once."""

    def load(spec: str) -> Model:
        model = load_model(spec)
        return model if cache is None else CachedModel(model, cache)

    scorers: list[Scorer] = [PooledScorer(load_scorer(spec, load)) for spec in specs]
    names = [scorer.spec for scorer in scorers]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"The scorer {twice[0]} is given twice.")
    if taken := [name for name in names_of(scorers) if name in own]:
        raise UsageError(f"The file has a field {taken[0]!r}, which the scores would overwrite; rename it.")
    return scorers


async def score_texts(source: TextFile, scorers: Sequence[Scorer], write: Write, count: Count = ignore) -> None:
    """Score all texts of the file; `write` gets every row with a result by each scorer."""
    rows = source.rows()
    size, done = _SMALLEST, 0
    while batch := list(islice(rows, size)):
        started = time.monotonic()
        texts = [row.text for row in batch]
        contexts = [row.context for row in batch] if source.context else None
        columns = await aio.all_of(scorer.score(texts, contexts) for scorer in scorers)
        for row, results in zip(batch, zip(*columns, strict=True), strict=True):
            write(row, results)
        done += len(batch)
        count(done, None)
        if time.monotonic() - started < 1:
            size = min(2 * size, _LARGEST)


@contextlib.contextmanager
def written_to(out: Path, fields: Sequence[str], scorers: Sequence[Scorer]) -> Generator[Write]:
    """Rows to a .csv or .jsonl file; it gets its name when it is whole, and ends in .part until then."""
    with draft(out, kept=part_of(out)) as part, part.open("w", encoding="utf-8", newline="") as file:
        is_csv = out.suffix.lower() == ".csv"
        yield csv_writer(file, fields, scorers) if is_csv else jsonl_writer(file, scorers)


def part_of(out: Path) -> Path:
    return out.with_name(out.name + ".part")


def names_of(scorers: Sequence[Scorer]) -> list[str]:
    """The fields of the scores: per scorer `SPEC.attribute` and `SPEC.unscored`, the reason."""
    return [f"{scorer.spec}.{name}" for scorer in scorers for name in (*scorer.attributes, "unscored")]


def csv_writer(file: IO[str], fields: Sequence[str], scorers: Sequence[Scorer]) -> Write:
    """Rows as CSV: the file's own fields, then those of the scores."""
    writer = csv.DictWriter(file, [*fields, *names_of(scorers)], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    return lambda row, results: writer.writerow({**row.fields, **_cells(scorers, results)})


def jsonl_writer(file: IO[str], scorers: Sequence[Scorer]) -> Write:
    """The same names as JSON Lines; null where there is no score or no reason."""

    def write(row: TextRow, results: Sequence[Result]) -> None:
        file.write(orjson.dumps({**row.fields, **_cells(scorers, results)}).decode() + "\n")

    return write


def _cells(scorers: Sequence[Scorer], results: Sequence[Result]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for scorer, result in zip(scorers, results, strict=True):
        scores: Scores = {} if isinstance(result, Unscored) else result
        for name in dict.fromkeys([*scorer.attributes, *scores]):
            cells[f"{scorer.spec}.{name}"] = round(scores[name], _DECIMALS) if name in scores else None
        cells[f"{scorer.spec}.unscored"] = result.reason if isinstance(result, Unscored) else None
    return cells


@dataclass(frozen=True, slots=True)
class AttributeMean:
    """One attribute by one scorer, over the texts that have it."""

    attribute: str
    n: int
    mean: Interval
    high: float
    """The share of texts at 0.5 or more."""


class ScoreTally:
    """The scores of all rows, and the reasons for missing ones."""

    def __init__(self, scorers: Sequence[Scorer], preview: int = 0) -> None:
        self.scorers = scorers
        self.rows = 0
        self.first: list[tuple[str, Sequence[Result]]] = []
        """The first texts, as many as are to be shown."""
        self.reasons = [Counter[str]() for _ in scorers]
        """Per scorer: why texts have no score."""
        self._preview = preview
        self._scores = [{name: array("d") for name in scorer.attributes} for scorer in scorers]

    def add(self, row: TextRow, results: Sequence[Result]) -> None:
        self.rows += 1
        if len(self.first) < self._preview:
            self.first.append((row.text, results))
        for place, result in enumerate(results):
            if isinstance(result, Unscored):
                self.reasons[place][result.reason] += 1
            for name, column in self._scores[place].items():
                column.append(math.nan if isinstance(result, Unscored) else result.get(name, math.nan))

    def means(self, place: int) -> list[AttributeMean]:
        """The attributes of the scorer at this place that any text has."""
        found: list[AttributeMean] = []
        for name, column in self._scores[place].items():
            values = [value for value in column if not math.isnan(value)]
            if values:
                high = sum(value >= _HIGH for value in values) / len(values)
                mean = bounded_mean_interval([(value, 1.0) for value in values])
                found.append(AttributeMean(name, len(values), mean, high))
        return found

    def agreements(self, first: int, second: int) -> list[ScoreAgreement]:
        """The attributes that two scorers have in common, over the texts that both have scored."""
        one, other = self._scores[first], self._scores[second]
        return [_agreement(name, one[name], other[name]) for name in one if name in other]


def _agreement(attribute: str, first: Sequence[float], second: Sequence[float]) -> ScoreAgreement:
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if not (math.isnan(x) or math.isnan(y))]
    return score_agreement(attribute, [x for x, _ in pairs], [y for _, y in pairs])
