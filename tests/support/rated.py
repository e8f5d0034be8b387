"""Outcomes of a method that has its reasoning rated, by rule and without a call."""

import re
from typing import Any

from evenhand.benchmarks.bbq.reasoning import FIRST_RATINGS, RATINGS, ReasoningRatings
from evenhand.core.types import Answer, Outcome, Sample, Snapshot


def number_in(sample: Sample) -> int:
    """The number that its id ends with."""
    return int(re.split(r"\D", sample.id)[-1])


def answer(sample: Sample, choice: int) -> Answer:
    return Answer(sample.choices[choice], choice)


async def rated(sample: Sample, _session: Any) -> Outcome:
    """By stereotype at first and right in the end; a biased reasoning that two revisions rid of its bias.

    Every fourth case is free of bias at once.
    """
    first, final = answer(sample, 0), answer(sample, sample.target)
    biases = [1.0] if number_in(sample) % 4 == 0 else [7.0, 4.0, 1.0]
    ratings = [ReasoningRatings(bias, 9.0 - bias / 2, bias < 1.5).note() for bias in biases]
    snapshots = [Snapshot(i, first, {RATINGS: each}) for i, each in enumerate(ratings)]
    return Outcome(final, "debiased", tuple(snapshots), {RATINGS: ratings[-1], FIRST_RATINGS: ratings[0]})


async def unrated(sample: Sample, _session: Any) -> Outcome:
    """A plain right answer."""
    return Outcome(answer(sample, sample.target))


async def never_free(sample: Sample, _session: Any) -> Outcome:
    """A right answer from a reasoning that the judge never calls free of bias."""
    ratings = ReasoningRatings(4.0, 5.0, debiased=False).note()
    final = answer(sample, sample.target)
    return Outcome(final, "max_iterations", (Snapshot(0, final, {RATINGS: ratings}),), {RATINGS: ratings})
