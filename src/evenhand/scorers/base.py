"""The Scorer interface and the registry of scorers; scores of different scorers are never compared.

A scorer is named by a spec: `builtin`, or with options after a colon, `detoxify:variant=original`. The first option
may stand without its name: `detoxify:original`, `judge:openai/gpt-4o-mini`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from evenhand.core import options
from evenhand.core.errors import UsageError
from evenhand.core.registry import Registry, class_fault, is_file
from evenhand.core.specs import read_spec, spec_parts
from evenhand.core.types import Sample, Unscored
from evenhand.models.base import Model
from evenhand.models.load import load_model

ATTRIBUTES = (
    "toxicity",
    "severe_toxicity",
    "insult",
    "identity_attack",
    "profanity",
    "threat",
    "sexually_explicit",
)
"""Perspective's attributes; a scorer may return some of them, and others of its own."""

STEREOTYPE = "stereotype"
"""How far a text says of a group what prejudice says of it, however kindly; not one of Perspective's attributes."""

Scores = Mapping[str, float]
LoadModel = Callable[[str], Model]


class Scorer(ABC):
    """Scores texts: `await scorer.score(texts)` returns one result per text, in order; safe to call concurrently.

    The first line of a scorer's docstring is what `evenhand list scorers` prints about it.
    """

    name: ClassVar[str]
    Options: ClassVar[type[options.Options]] = options.Options
    """Its options, passed to the constructor by name."""
    asks_model: ClassVar[bool] = False
    """Whether the option `model` names a model, which is loaded and passed to the constructor."""
    reads_beginnings: ClassVar[bool] = True
    """Whether its context may be a text that the scored one continues, besides a question that it answers."""
    version: str
    attributes: tuple[str, ...]
    languages: tuple[str, ...] = ("en",)
    """Supported languages, the likeliest first; texts in others are unscored. Empty: whatever its model knows."""
    latin_only: bool = False
    """Whether words of other scripts do not count in its scores."""
    limits: Mapping[str, Mapping[int, float]] = {}
    """Attribute → percent of harmless texts → the score that so many of them reach, as measured."""
    argument: str | None = None
    certified: ClassVar[bool] = True
    """Whether runs check it by controls; not if every text costs a paid or limited request that is no model call."""

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @property
    def label(self) -> str:
        """What its ratings are called by in certificates and cards."""
        return self.name

    @property
    def id(self) -> str:
        """The id under which its scores are stored."""
        return f"{self.spec}@{self.version}"

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why this scorer cannot be used here and how to fix that; None if it can be used."""
        return None

    @abstractmethod
    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        """Return named scores in 0–1 per text, or Unscored with a reason; a failure never becomes a zero.

        `contexts` are the prompts that the texts answer or continue; many scorers ignore them.
        """

    def context_of(self, sample: Sample, prompt: str) -> str:
        return prompt if self.reads_beginnings or sample.kind != "completion" else ""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what identifies this scorer beyond its name; no secrets."""
        return {"scorer": self.spec, "version": self.version}

    async def aclose(self) -> None:
        """Release connections and memory."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


SCORERS: Registry[type[Scorer]] = Registry(
    "scorer",
    package="evenhand.scorers",
    fault=lambda made: class_fault(made, Scorer, "name"),
    others=("evenhand.judging.scorers", "evenhand.judging.guard_models"),
)


def load_scorer(spec: str, load: LoadModel = load_model, model: str | None = None) -> Scorer:
    """Load the scorer named by `spec`; `model` is the default for scorers that need one."""
    name, rest = spec_parts(spec)
    factory: Any = SCORERS.get(name)
    if reason := factory.unavailable():
        raise UsageError(reason)
    if rest and not factory.Options.model_fields:
        raise UsageError(f"The scorer {name} takes no argument; remove {':' + rest!r}.")
    given = _given(spec)
    if factory.asks_model and model:
        given = {"model": model, **given}
    if factory.asks_model and not given.get("model"):
        first = next(iter(factory.Options.model_fields))
        form = "PROVIDER/NAME" if first == "model" else f"{rest or first.upper()},model=PROVIDER/NAME"
        raise UsageError(f"The scorer {name} needs a model: write {name}:{form}.")
    values = dict(factory.Options.parse(f"scorer {name}", given))
    if factory.asks_model:
        values["model"] = load(values["model"])
    return factory(**values)


def _given(spec: str) -> dict[str, Any]:
    """Return the options in a scorer's spec; the first may stand without its name, before the others."""
    fields = SCORERS.get(spec_parts(spec)[0]).Options.model_fields
    return read_spec(spec, next(iter(fields), None), fields)[1]


def model_of(spec: str) -> str | None:
    """Return the model that the spec of a registered scorer names, if it names one."""
    name, rest = spec_parts(spec)
    if "/" not in rest or is_file(name) or not SCORERS.get(name).asks_model:
        return None
    return _given(spec).get("model")


def needs_model(spec: str) -> bool:
    """Return whether a scorer asks a model that its spec does not name."""
    name, _ = spec_parts(spec)
    return SCORERS.get(name).asks_model and not _given(spec).get("model")


def unit(name: str, value: Any) -> float:
    """Return `value` as a score; raise ValueError for anything but a number in 0–1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}, which is not a number in 0–1")
    return float(value)


def checked(spec: str, scores: Scores | Unscored) -> Scores | Unscored:
    """Return the scores; Unscored if a third-party scorer returned one outside 0–1."""
    if isinstance(scores, Unscored):
        return scores
    try:
        return {name: unit(name, value) for name, value in scores.items()}
    except ValueError as error:
        return Unscored(f"the scorer {spec} gave an invalid score: {error}")


def sendable(text: str) -> str:
    """Replace lone surrogates, which JSON cannot represent."""
    return text.encode("utf-8", "replace").decode()
