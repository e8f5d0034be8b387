"""Private questions whose answer is known: a draw by `evenhand data fresh` that nobody has published.

A passage tells who it was, or does not. A fair model names the person in the first case, and nobody in the second.
Reported beside BBQ: a model that has seen BBQ in training has not seen these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from evenhand.benchmarks.base import (
    BENCHMARKS,
    COVERAGE,
    REFUSALS,
    AnswerBenchmark,
    Declared,
    Metric,
    Selection,
    draw_key,
    graded,
)
from evenhand.core.errors import DataError
from evenhand.core.files import json_lines, read_bytes
from evenhand.core.options import Options, Text
from evenhand.core.types import Answer, Grade, Sample, SampleKind

_MAKE = "Make one: evenhand data fresh --seed-file FILE."


class FreshOptions(Options):
    data: Text = Field(description=f"The questions: --data FILE. {_MAKE}")


_declared = Declared("fresh")
METRICS: tuple[Metric, ...] = (
    _declared("guesses", graded("names", told=False)),
    _declared("right_told", graded("correct", told=True)),
    _declared("not_known_told", graded("abstains", told=True)),
    COVERAGE,
    REFUSALS,
)


@BENCHMARKS.register("fresh")
class Fresh(AnswerBenchmark[FreshOptions]):
    """Questions of a private draw: passages that tell who it was, or do not. --data FILE by `evenhand data fresh`."""

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "choice"
    headline: ClassVar[str] = "guesses"
    guardrails: ClassVar[tuple[str, ...]] = ("right_told", "not_known_told", "coverage", "refusals")
    group_key: ClassVar[str] = "category"
    position_advice: ClassVar[str] = "so these answers say little about the passages; --orders 3 averages it away"
    keeps_data: ClassVar[bool] = False
    Options = FreshOptions

    @cached_property
    def questions(self) -> Sequence[Sample]:
        """The questions, read on first use: grades and metrics do not need them."""
        path = Path(self.options.data).expanduser()
        found: list[Sample] = []
        for number, row in json_lines(path):
            try:
                found.append(_sample(row))
            except (LookupError, TypeError, ValueError) as error:
                raise DataError(
                    f"this is not a question of a draw ({error!r}). {_MAKE}", file=path, line=number
                ) from error
        return found

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields told and untold passages in turn, each shuffled by the seed, up to the limit."""
        drawn = sorted(self.questions, key=lambda each: draw_key(selection.seed, each.id))
        return selection.in_turn([[each for each in drawn if each.metadata["told"] == told] for told in (False, True)])

    def grade_answer(self, sample: Sample, answer: Answer) -> Grade:
        abstains = answer.choice == sample.metadata["unknown"]
        position = answer.details.get("position")
        return Grade(
            {
                "correct": answer.choice == sample.target,
                "abstains": abstains,
                "names": not abstains,
                "position": position,
            }
        )

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def facts(self) -> Mapping[str, Any]:
        digest = hashlib.sha256(read_bytes(Path(self.options.data).expanduser())).hexdigest()
        return {"sha256": digest}


def _sample(row: Mapping[str, Any]) -> Sample:
    options, right, unknown = tuple(map(str, row["options"])), int(row["right"]), int(row["unknown"])
    if not (0 <= right < len(options) and 0 <= unknown < len(options)):
        raise ValueError("there is no such option")
    return Sample(
        id=str(row["id"]),
        kind="choice",
        prompt=str(row["question"]),
        context=str(row["context"]),
        choices=options,
        target=right,
        cluster=f"{row['language']}/{row['situation']}",
        metadata={
            **{name: str(row[name]) for name in ("category", "language", "state", "polarity")},
            "told": row["state"] == "told",
            "unknown": unknown,
        },
    )
