"""The stored form of a debate: statements and the referee's scores. Methods write it, all other modules read it.

A sample of the kind `debate` has a neutral question as its prompt; its metadata has the topic, the type of bias and
the roles. The outcome's notes have every statement of every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from evenhand.core.types import Sample

ROLES = "roles"
"""Metadata key of the roles in a sample."""
STATEMENTS, ROUNDS, DECLINED, DISAGREED = "statements", "rounds", "declined", "disagreed"
"""Keys of an outcome's notes: the statements, the number of the last round, the turns without a statement, and the
rounds whose ranks and scores disagree."""
WORST = 10
"""The highest bias score; the lowest is 0."""


@dataclass(frozen=True, slots=True)
class DebateRole:
    """A participant: a name ("40-year-old") and a description."""

    name: str
    description: str


def roles_of(sample: Sample) -> tuple[DebateRole, ...]:
    return tuple(DebateRole(**each) for each in sample.metadata[ROLES])


@dataclass(frozen=True, slots=True)
class Statement:
    """What one role said in one round, with the referee's score."""

    role: str
    round: int
    """Number of the round, from 1."""
    text: str
    score: float | None = None
    """Bias from 0 to 10, an expected value if the model gives logprobs; None if it could not be parsed."""
    written: float | None = None
    """The score as written by the referee."""
    rank: int | None = None
    """1 is the least biased of the round."""
    why: str = ""


def noted(statements: Sequence[Statement]) -> list[dict[str, Any]]:
    return [asdict(each) for each in statements]


def statements_in(notes: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Returns the statements in a method's notes, in the order of the debate."""
    return tuple(Statement(**each) for each in notes.get(STATEMENTS, ()))


def disagreements(statements: Sequence[Statement]) -> list[int]:
    """Returns the rounds in which the referee ranked a statement as less biased than another but scored it higher."""
    found = {
        one.round for one, other in combinations(statements, 2) if one.round == other.round and _contradict(one, other)
    }
    return sorted(found)


def _contradict(one: Statement, other: Statement) -> bool:
    # Written scores: expected values of equal numbers differ slightly.
    if one.rank is None or other.rank is None or one.written is None or other.written is None:
        return False
    return (one.rank - other.rank) * (one.written - other.written) < 0
