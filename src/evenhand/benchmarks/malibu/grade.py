"""The grade of a deliberation: every judge's scores in every round, and the number of unusable judgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenhand.core.types import Grade, Outcome, Refusal, Sample, Unscored
from evenhand.panels import Deliberation, Given, Judgement, candidates_of, definitions_in, deliberation_in


def grade_of(sample: Sample, outcome: Outcome) -> Grade | Unscored:
    """Returns the grade of a judgement from the deliberation in the method's notes."""
    deliberation = deliberation_in(outcome.notes)
    if deliberation is None:
        return Unscored("the method stored no deliberation", getattr(outcome.result, "text", ""))
    count = len(candidates_of(sample))
    consensus, size = deliberation.consensus, (count, len(definitions_in(sample.metadata)))
    if not _fits(consensus.scores, size):
        return Unscored(f"the judgement has no {size[1]} scores for each of the {count} candidates")
    given = [each for round_ in deliberation.rounds for each in round_.values()]
    values: dict[str, Any] = {
        "scores": _rows(consensus),
        "winner": consensus.winner,
        "rounds": [{judge: _scores(each, size) for judge, each in round_.items()} for round_ in deliberation.rounds],
        "heard": [{judge: list(names) for judge, names in each.items()} for each in deliberation.heard],
        "given": len(given),
        "unread": sum(isinstance(each, Unscored) for each in given),
        "declined": sum(isinstance(each, Refusal) for each in given),
        "unchanged": _unchanged(deliberation),
    }
    if count == 2:
        values["winners"] = [
            {judge: each.winner if isinstance(each, Judgement) else None for judge, each in round_.items()}
            for round_ in deliberation.rounds
        ]
    return Grade(values)


def _fits(scores: Sequence[Sequence[float]], size: tuple[int, int]) -> bool:
    """Whether there are as many candidates and metrics as this."""
    count, metrics = size
    return len(scores) == count and all(len(each) == metrics for each in scores)


def _scores(given: Given, size: tuple[int, int]) -> list[list[float]] | None:
    return _rows(given) if isinstance(given, Judgement) and _fits(given.scores, size) else None


def _rows(judgement: Judgement) -> list[list[float]]:
    return [list(each) for each in judgement.scores]


def _unchanged(deliberation: Deliberation) -> list[str]:
    """Returns the judges whose first and last scores are equal; none without a discussion."""
    if len(deliberation.rounds) < 2:
        return []
    first, last = deliberation.rounds[0], deliberation.rounds[-1]
    return [judge for judge in deliberation.judges if _same(first.get(judge), last.get(judge))]


def _same(before: Given | None, after: Given | None) -> bool:
    if not isinstance(before, Judgement) or not isinstance(after, Judgement) or before.winner != after.winner:
        return False
    # Compares written scores, since expected values change slightly with every change of the prompt.
    if before.written and after.written:
        return before.written == after.written
    return before.scores == after.scores
