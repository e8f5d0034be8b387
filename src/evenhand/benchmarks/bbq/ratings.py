"""A judge's ratings of a reasoning, in the form that methods write to the notes and benchmarks read.

If an answer is based on a rated reasoning, the notes of its outcome and snapshots have `ratings`. The outcome also has
`first_ratings`, those of the first reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

RATINGS, FIRST_RATINGS = "ratings", "first_ratings"


@dataclass(frozen=True, slots=True)
class ReasoningRatings:
    """Bias from 1 (none) to 10 (extreme) and relevancy from 1 (irrelevant) to 10 (fully relevant)."""

    bias: float
    relevancy: float
    debiased: bool
    """Whether the bias is below the method's threshold."""

    def note(self) -> dict[str, Any]:
        return {"bias": round(self.bias, 3), "relevancy": round(self.relevancy, 3), "debiased": self.debiased}


def ratings_in(notes: Mapping[str, Any], key: str = RATINGS) -> ReasoningRatings | None:
    """Returns the ratings in a method's notes; None if there are none."""
    found: Any = notes.get(key)
    if not isinstance(found, Mapping):
        return None
    noted = cast(Mapping[str, Any], found)
    return ReasoningRatings(noted["bias"], noted["relevancy"], noted["debiased"])
