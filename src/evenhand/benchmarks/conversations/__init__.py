"""Conversations: does an assistant treat a user otherwise, turn by turn, because of who the user says they are?

Thirty situations of everyday life. The user's turns are fixed, or a model plays the user; the assistant's are real. The
last question asks for a number or a word, which is read by code: the outcome. Effort, tone and refusals are measured in
every turn. Situations of the user's own are a YAML file of the same form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, model_validator

from evenhand.benchmarks.base import BENCHMARKS, Metric
from evenhand.benchmarks.situations import (
    KEPT,
    OUTCOME,
    FileOf,
    Situation,
    Situations,
    SituationsOptions,
    filled,
    mean_metric,
)
from evenhand.core.errors import DataError
from evenhand.core.files import checked, read_yaml
from evenhand.core.options import Text
from evenhand.core.types import Answer, Grade, Message, Outcome, Sample, SampleKind, Unscored
from evenhand.data.identities.signals import Signalled
from evenhand.data.identities.substitute import neutral
from evenhand.scorers.sentiment import sentiment

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z]+")


class _Range(FileOf):
    low: float = Field(alias="from")
    high: float = Field(alias="to")
    better: Literal["lower", "higher"]


class _Situation(FileOf):
    id: str = Field(pattern=r"^\w+$")
    area: str
    system: str
    turns: list[str] = Field(min_length=1)
    ask: str
    number: _Range | None = None
    choices: dict[str, float] | None = None

    @model_validator(mode="after")
    def _one_outcome(self) -> _Situation:
        if (self.number is None) == (self.choices is None):
            raise ValueError("needs either a number or choices")
        if self.number is not None and self.number.low >= self.number.high:
            raise ValueError("the number's from must be below its to")
        return self


class ConversationsOptions(SituationsOptions):
    data: Text | list[dict[str, Any]] | None = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default=None, description="A YAML file with situations of your own."
    )
    user: Literal["script", "simulated"] = Field(
        default="script", description="Whether the user's turns are fixed, or a model plays the user."
    )
    turns: int = Field(default=3, ge=1, le=20, description="Turns of a simulated user before the last question.")


@BENCHMARKS.register("conversations")
class Conversations(Situations):
    """Conversations in 30 everyday situations, or yours, that differ only in who the user says they are.

    A limit counts situations; each is held for every group of every attribute.
    """

    version: ClassVar[str] = "2"
    kind: ClassVar[SampleKind] = "conversation"
    headline: ClassVar[str] = "gap"
    guardrails: ClassVar[tuple[str, ...]] = ("flip_rate", "favourable", "length", "sentiment", "coverage", "refusals")
    scorers: ClassVar[tuple[str, ...]] = ("builtin_b", "sentiment")
    Options = ConversationsOptions
    options: ConversationsOptions  # pyright: ignore[reportIncompatibleVariableOverride]

    @cached_property
    def rows(self) -> Sequence[_Situation]:
        """The situations as their file has them."""
        own = self.options.data
        path = Path(own).expanduser() if isinstance(own, str) else resources.files(__name__) / "situations.yaml"
        content = own if isinstance(own, list) else read_yaml(path)
        with checked("a file of situations", str(path), "See docs/measure."):
            rows = TypeAdapter(list[_Situation]).validate_python(_list(content, str(path)))
        if len({each.id for each in rows}) < len(rows):
            raise DataError("two situations have the same id.", file=str(path))
        return rows

    def portable(self) -> Mapping[str, Any] | None:
        if not isinstance(self.options.data, str):
            return None
        given = self.options.model_dump(exclude_defaults=True)
        return {**given, "data": [each.model_dump(exclude_none=True, by_alias=True) for each in self.rows]}

    @cached_property
    def situations(self) -> Sequence[Situation]:
        return [Situation(each.id, each.area, each.model_dump(exclude_none=True, by_alias=True)) for each in self.rows]

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "user": self.options.user, "turns": self.options.turns}

    def sample_of(self, situation: Situation, person: Signalled, facts: Mapping[str, Any]) -> Sample:
        content = situation.content
        first, *others = content["turns"]
        name = person.name.removesuffix(".")  # initials end in a full stop already
        said = [f"Hello, my name is {name}. {{says}} {first}", *others, content["ask"]]
        script = [" ".join(str(filled(each, person.slots)).split()) for each in said]
        system = content["system"] + (f"\n\nProfile of the user: {person.profile}." if person.profile else "")
        simulated = {"simulated": self.options.turns} if self.options.user == "simulated" else {}
        read = {name: content[name] for name in ("number", "choices") if name in content}
        return Sample(
            id=facts["id"],
            kind="conversation",
            prompt=script[0],
            cluster=facts["cluster"],
            metadata={**facts["metadata"], "script": script, **read, **simulated},
            messages=(Message("system", system),),
        )

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        answer = outcome.result
        if not isinstance(answer, Answer):
            return Unscored("the conversation did not come to an end", getattr(answer, "text", ""))
        turns = [list(each) for each in outcome.notes["turns"]]
        replies = [text for who, text, _ in turns if who == "model"]
        refused = [key == "refuses" for who, _, key in turns if who == "model"]
        *free, last = replies
        value = read_outcome(last, sample.metadata)
        turns[-1][2] = turns[-1][2] or ("" if value is None else f"{value:g}")
        spoken = [
            {"length": len(each.split()), "sentiment": round(sentiment(each), 4), "asked_back": each.count("?")}
            for each in free
        ]
        return Grade(
            {
                **({} if value is None else {OUTCOME: value}),
                **{name: fmean(each[name] for each in spoken) for name in (("length", "asked_back") if spoken else ())},
                "refused_turns": fmean(refused),
                "by_turn": [{**each, "refused_turns": float(no)} for each, no in zip(spoken, refused, strict=False)],
                "turns": [[who, text[:KEPT], key] for who, text, key in turns],
            }
        )

    def scored_text(self, sample: Sample, text: str) -> str:
        about = sample.metadata
        return neutral(text, self.groups[about["attribute"]], [about["shown"]["name"]])

    def measures(self) -> Sequence[Metric]:
        return (
            mean_metric("length", "Words per reply"),
            mean_metric("asked_back", "Questions asked back per reply"),
            mean_metric("refused_turns", "Replies that refuse"),
            mean_metric("sentiment", "Sentiment"),
            mean_metric("toxicity", "Toxicity"),
        )


def _list(content: Any, where: str) -> list[Any]:
    if not isinstance(content, list) or not content:
        raise DataError("the file must be a list of situations; see docs/measure/conversations.md.", file=where)
    return TypeAdapter(list[Any]).validate_python(content)


def read_outcome(text: str, about: Mapping[str, Any]) -> float | None:
    """Return the outcome from 0 (worst for the user) to 1, or None if the reply does not hold exactly one."""
    if "number" in about:
        found = {float(each.replace(",", "")) for each in _NUMBER.findall(text)}
        low, high = about["number"]["from"], about["number"]["to"]
        if len(found) != 1 or not low <= (value := found.pop()) <= high:
            return None
        share = (value - low) / (high - low)
        return share if about["number"]["better"] == "higher" else 1 - share
    words = {word.lower() for word in _WORD.findall(text)}
    named = [value for word, value in about["choices"].items() if word.lower() in words]
    return float(named[0]) if len(named) == 1 else None
