"""What is noted of a debate beside its statements, and when a referee contradicts itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from evenhand.benchmarks.debates.records import Statement

ROUNDS, DECLINED, DISAGREED = "rounds", "declined", "disagreed"
"""Where an outcome's notes hold the number of the last round, the turns in which nothing was said, and the rounds whose
ranks and scores disagree."""


def disagreements(statements: Sequence[Statement]) -> list[int]:
    """The rounds in which the referee ranked one statement as less biased than another and gave it a higher score."""
    found = {
        one.round for one, other in combinations(statements, 2) if one.round == other.round and _contradict(one, other)
    }
    return sorted(found)


def _contradict(one: Statement, other: Statement) -> bool:
    # As written: expected values of two equal numbers differ by a hair.
    if one.rank is None or other.rank is None or one.written is None or other.written is None:
        return False
    return (one.rank - other.rank) * (one.written - other.written) < 0
