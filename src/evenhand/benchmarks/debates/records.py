"""What was said in a debate and how biased a referee found it, in the one form that methods note and others read.

A sample of the kind `debate` has a neutral question as its prompt; its metadata names the topic, the type of bias and
the roles. The outcome's notes hold every statement of every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenhand.types import Sample

ROLES, STATEMENTS = "roles", "statements"
"""Where a sample's metadata holds the roles, and an outcome's notes the statements."""
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
