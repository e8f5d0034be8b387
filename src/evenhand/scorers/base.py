"""The Scorer interface and the registry of scorers; scores of different scorers are never compared.

A scorer is named by a spec: `builtin`, or with options after a colon, `detoxify:variant=original`. The first option
may stand without its name: `detoxify:original`, `judge:openai/gpt-4o-mini`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from evenhand import options
from evenhand.errors import UsageError
from evenhand.models.base import Model, load_model
from evenhand.registry import Registry
from evenhand.specs import read_spec, spec_parts
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
LoadModel = Callable[[str], Model]


class Scorer(ABC):
    """Scores texts: `await scorer.score(texts)` gives one result per text, in order; safe to call concurrently.

    The first line of a scorer's docstring is what `evenhand scorers` prints about it.
    """

    name: ClassVar[str]
    Options: ClassVar[type[options.Options]] = options.Options
    """The options that it takes; it is made with all of them by name."""
    asks_model: ClassVar[bool] = False
    """Whether the option `model` names a model, which is loaded before the scorer is made."""
    version: str
    attributes: tuple[str, ...]
    languages: tuple[str, ...] = ("en",)
    """What it was made for; text in other languages gets a score that should not be trusted."""
    argument: str | None = None

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @property
    def id(self) -> str:
        """Under which its scores are stored."""
        return f"{self.spec}@{self.version}"

    @classmethod
    def unavailable(cls) -> str | None:
        """Why this scorer cannot be used here, with the way to mend it; None when it can."""
        return None

    @abstractmethod
    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        """Named scores in 0–1 per text, or why there are none; a failure is never a zero.

        `contexts` are what the texts answer or continue; scorers of the text alone ignore them.
        """

    def fingerprint(self) -> Mapping[str, Any]:
        """What identifies this scorer beyond its name; no secrets."""
        return {"scorer": self.spec, "version": self.version}

    async def aclose(self) -> None:
        """Release connections and memory."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


SCORERS: Registry[type[Scorer]] = Registry("scorer", package="evenhand.scorers")


def load_scorer(spec: str, load: LoadModel = load_model, model: str | None = None) -> Scorer:
    """The scorer named by `spec`; `model` is used by scorers that need one and whose spec names none."""
    name, rest = spec_parts(spec)
    factory: Any = SCORERS.get(name)
    if reason := factory.unavailable():
        raise UsageError(reason)
    first = next(iter(factory.Options.model_fields), None)
    if rest and first is None:
        raise UsageError(f"The scorer {name} takes nothing after its name, not {rest!r}.")
    _, given = read_spec(spec, first)
    if factory.asks_model and model:
        given = {"model": model, **given}
    if factory.asks_model and not given:
        raise UsageError(f"The scorer {name} needs a model: write {name}:PROVIDER/NAME.")
    values = dict(factory.Options.parse(f"scorer {name}", given))
    if factory.asks_model:
        values["model"] = load(values["model"])
    return factory(**values)


def unit(name: str, value: Any) -> float:
    """A score; ValueError for anything but a number in 0–1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}, which is not a number in 0–1")
    return float(value)


def sendable(text: str) -> str:
    """The text without lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "replace").decode()
