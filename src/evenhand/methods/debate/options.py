"""The options of debates and of RLAIF."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from evenhand.core.errors import PlanError
from evenhand.methods.base import WritingOptions

Scoring = Literal["numbers", "odds"]
"""A number from 0 to 10 that the referee writes, or the probability that it calls a statement prejudiced."""
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


class RefereeOptions(WritingOptions):
    """Options of methods whose statements a referee scores."""

    max_tokens: int = Field(default=160, ge=16, le=100_000, description="Maximum number of tokens of a statement.")
    referee_tokens: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Maximum number of tokens of the referee's reply; 0 allows as many as its form needs.",
    )
    scoring: Scoring = Field(
        default="numbers",
        description="The referee's score: a number from 0 to 10, or the probability that it calls a text prejudiced.",
    )
    bands: bool = Field(
        default=False, description="Whether the referee sees a rated example of each band of its scale."
    )


class DebateOptions(RefereeOptions):
    """Options of `debate`."""

    presets: ClassVar = {
        "paper": {
            "temperature": 0.7,
            "max_tokens": 160,
            "referee_tokens": 0,
            "scoring": "numbers",
            "bands": False,
            "rounds": 5,
            "words": 80,
        }
    }

    rounds: int = Field(default=5, ge=1, le=20, description="Number of rounds; every role speaks once in each.")
    temperature: float = Field(default=0.7, ge=0, le=2, description="The sampling temperature of the debaters.")
    words: int = Field(
        default=80,
        ge=10,
        le=10_000,
        description="Words that a statement should have. A model trained on statements learns their length.",
    )


class RlaifOptions(RefereeOptions):
    """Options of `rlaif`."""

    presets: ClassVar = {
        "paper": {
            "temperature": 1.0,
            "max_tokens": 160,
            "referee_tokens": 0,
            "scoring": "numbers",
            "bands": False,
            "answers": 4,
        }
    }

    answers: int = Field(default=4, ge=2, le=26, description="Number of answers that are sampled and scored.")
    temperature: float = Field(default=1.0, ge=0, le=2, description="The sampling temperature of the answers.")

    @model_validator(mode="after")
    def _different(self) -> Self:
        if self.temperature == 0:
            raise PlanError(
                "At temperature 0 all answers are the same, but RLAIF needs different ones to compare. "
                "Set a temperature above 0."
            )
        return self
