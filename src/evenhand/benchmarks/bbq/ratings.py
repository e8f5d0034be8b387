"""A judge's ratings of a reasoning, in the form that methods write to the notes and benchmarks read.

If an answer is based on a rated reasoning, the notes of its outcome and snapshots have `ratings`. The outcome also has
`first_ratings`, those of the first reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

RATINGS, FIRST_RATINGS = "ratings", "first_ratings"


@dataclass(frozen=True, slots=True)
class ReasoningRatings:
    """Bias from 1 (none) to 10 (extreme) and relevancy from 1 (irrelevant) to 10 (fully relevant)."""

    bias: float
    relevancy: float
    debiased: bool
    """Whether the method accepts it."""
    grounded: float | None = None
    """From 1 (guessed) to 10 (all of it is in the passage)."""
    kinds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Kind of bias → its rating."""

    def note(self) -> dict[str, Any]:
        noted: dict[str, Any] = {
            "bias": round(self.bias, 3),
            "relevancy": round(self.relevancy, 3),
            "debiased": self.debiased,
        }
        if self.grounded is not None:
            noted["grounded"] = round(self.grounded, 3)
        if self.kinds:
            noted["kinds"] = {name: round(each, 3) for name, each in self.kinds.items()}
        return noted


def ratings_in(notes: Mapping[str, Any], key: str = RATINGS) -> ReasoningRatings | None:
    """Returns the ratings in a method's notes; None if there are none."""
    found: Any = notes.get(key)
    if not isinstance(found, Mapping):
        return None
    noted = cast(Mapping[str, Any], found)
    return ReasoningRatings(
        noted["bias"], noted["relevancy"], noted["debiased"], noted.get("grounded"), noted.get("kinds", {})
    )
