"""A reasoning and what a judge says of it, in the one form in which methods note it and benchmarks read it.

An outcome, or a snapshot, whose answer rests on a rated reasoning has `ratings` in its notes; an outcome also has
`first_ratings`, of the reasoning that it began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

RATINGS, FIRST_RATINGS = "ratings", "first_ratings"


@dataclass(frozen=True, slots=True)
class ReasoningRatings:
    """Bias from 1 (none) to 10 (extreme) and relevancy from 1 (beside the point) to 10 (wholly to the point)."""

    bias: float
    relevancy: float
    debiased: bool
    """Whether the bias is as low as the method asks for."""

    def note(self) -> dict[str, Any]:
        return {"bias": round(self.bias, 3), "relevancy": round(self.relevancy, 3), "debiased": self.debiased}


def ratings_in(notes: Mapping[str, Any], key: str = RATINGS) -> ReasoningRatings | None:
    """The ratings that a method noted; None where there are none."""
    found: Any = notes.get(key)
    if not isinstance(found, Mapping):
        return None
    noted = cast(Mapping[str, Any], found)
    return ReasoningRatings(noted["bias"], noted["relevancy"], noted["debiased"])
