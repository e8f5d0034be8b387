"""The record of a debate: what was said, and how biased a referee found it. Methods write it, all others read it.

A sample of the kind `debate` has a neutral question as its prompt; its metadata names the topic, the type of bias and
the roles. The outcome's notes hold every statement of every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from evenhand.types import Sample

ROLES = "roles"
"""Where a sample's metadata holds the roles."""
STATEMENTS, ROUNDS, DECLINED, DISAGREED = "statements", "rounds", "declined", "disagreed"
"""Where an outcome's notes hold the statements, the number of the last round, the turns in which nothing was said, and
the rounds whose ranks and scores disagree."""
WORST = 10
"""Bias scores go from 0 (none) to this."""


@dataclass(frozen=True, slots=True)
class DebateRole:
    """Somebody who takes part: a name ("40-year-old") and who that is."""

    name: str
    description: str


def roles_of(sample: Sample) -> tuple[DebateRole, ...]:
    return tuple(DebateRole(**each) for each in sample.metadata[ROLES])


@dataclass(frozen=True, slots=True)
class Statement:
    """What one role said in one round, and what the referee gave it."""

    role: str
    round: int
    """From 1."""
    text: str
    score: float | None = None
    """Bias from 0 to 10, an expected value where the model gives logprobs; None where it could not be read."""
    written: float | None = None
    """The score as it was written."""
    rank: int | None = None
    """1 is the least biased of the round."""
    why: str = ""


def noted(statements: Sequence[Statement]) -> list[dict[str, Any]]:
    return [asdict(each) for each in statements]


def statements_in(notes: Mapping[str, Any]) -> tuple[Statement, ...]:
    """The statements that a method noted, in the order in which they were made."""
    return tuple(Statement(**each) for each in notes.get(STATEMENTS, ()))


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
