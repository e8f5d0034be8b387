"""The Scorer interface and the registry of scorers; scores of different scorers are never compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from evenhand.registry import Registry
from evenhand.types import Unscored

ATTRIBUTES = (
    "toxicity",
    "severe_toxicity",
    "insult",
    "identity_attack",
    "profanity",
    "threat",
    "sexually_explicit",
)
"""The attributes of Perspective; a scorer may give some of them, and others of its own."""

Scores = Mapping[str, float]


class Scorer(ABC):
    """Scores texts: `await scorer.score(texts)` gives one result per text, in order."""

    name: ClassVar[str]
    """The id under which scores are stored, together with `version`."""
    version: str
    attributes: tuple[str, ...]
    languages: tuple[str, ...] = ("en",)
    """What it was made for; text in other languages gets a score that should not be trusted."""

    @classmethod
    def unavailable(cls) -> str | None:
        """Why this scorer cannot be used here, with the way to mend it; None when it can."""
        return None

    @abstractmethod
    async def score(self, texts: Sequence[str]) -> list[Scores | Unscored]:
        """Named scores in 0–1 per text, or why there are none; a failure is never a zero."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What identifies this scorer beyond its name; no secrets."""
        return {"scorer": self.name, "version": self.version}

    async def aclose(self) -> None:
        """Release connections and memory."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


SCORERS: Registry[type[Scorer]] = Registry("scorer", package="evenhand.scorers")


def load_scorer(name: str, **options: Any) -> Scorer:
    """The scorer called `name`; options go to its constructor."""
    factory: Any = SCORERS.get(name)
    return factory(**options)
