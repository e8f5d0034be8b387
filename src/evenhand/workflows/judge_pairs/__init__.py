"""Checks judges by pairs of answers: does the order decide, and does a judge prefer answers of its own?

Every judge compares the answers of two arms to the same question, in both orders. What it says must not depend on the
order. Whether it prefers its own answers shows against other judges of the same pairs, who may be right that these are
better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from evenhand.annotate.sheets import common_answers
from evenhand.asking.structured import ask_json, object_schema
from evenhand.benchmarks.base import draw_key
from evenhand.core import aio
from evenhand.core.errors import ModelError, PlanError, UsageError
from evenhand.core.progress import Count, ignore
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.specs import model_spec
from evenhand.core.types import Message, Params, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.models.base import Model
from evenhand.models.budget import Budget
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import ModelPlan
from evenhand.runs.stored import open_sources
from evenhand.session import Session

Winner = Literal["first", "second", "tie"]
"""Of the two answers as they were shown."""
_TOKENS = 1024
_SHOWN: Mapping[str, Winner] = {"A": "first", "B": "second", "tie": "tie"}
_SCHEMA = object_schema(winner={"type": "string", "enum": list(_SHOWN)})


class _Reply(BaseModel):
    winner: Literal["A", "B", "tie"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one question, by two arms."""

    sample: Sample
    arms: tuple[str, str]
    texts: tuple[str, str]

    @property
    def cluster(self) -> str:
        return self.sample.cluster or self.sample.id


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said about a pair in both orders; None where it could not be read."""

    pair: Pair
    straight: Winner | None
    """With the answers in the order of the pair's arms."""
    swapped: Winner | None

    @property
    def is_read(self) -> bool:
        return self.straight is not None and self.swapped is not None

    @property
    def score(self) -> float:
        """Of the pair's first answer: 1 if it won in both orders, 0.5 for a tie or one win each, 0 if it lost."""
        straight = {"first": 1.0, "second": 0.0, "tie": 0.5}[self.straight or "tie"]
        return (straight + {"first": 0.0, "second": 1.0, "tie": 0.5}[self.swapped or "tie"]) / 2

    @property
    def is_consistent(self) -> bool:
        """Whether the order changed nothing."""
        return (self.straight, self.swapped) in (("first", "second"), ("second", "first"), ("tie", "tie"))

    @property
    def followed(self) -> Literal["first", "second"] | None:
        """The place that won in both orders, whatever stood there."""
        return self.straight if self.straight == self.swapped and self.straight != "tie" else None


@dataclass(frozen=True, slots=True)
class Material:
    """The pairs to judge, and the model that wrote the answers of each arm."""

    pairs: Sequence[Pair]
    authors: Mapping[str, str]
    questions: int
    same: int
    """Pairs that are left out, because both answers are the same."""


def read_pairs(runs: Sequence[Path], limit: int | None = None, seed: int = 0) -> Material:
    """Return the answers of all arms of the runs in pairs, to `limit` questions drawn by the seed."""
    with open_sources(runs) as (_, sources):
        labels = [source.label for source in sources]
        if len(labels) < 2:
            raise PlanError("A pair needs two arms; name a run with two methods or models, or several runs.")
        answers, _ = common_answers(sources)
        authors = {source.label: author_of(source.arm.models["base"].spec) for source in sources}
    if limit is not None and limit < 1:
        raise UsageError(f"The limit must be at least 1, not {limit}.")
    chosen = sorted(answers, key=lambda name: draw_key(seed, name))[:limit]
    pairs: list[Pair] = []
    same = 0
    for sample, texts in (answers[name] for name in chosen):
        for first, second in combinations(range(len(labels)), 2):
            if texts[first].strip() == texts[second].strip():
                same += 1
            else:
                pairs.append(Pair(sample, (labels[first], labels[second]), (texts[first], texts[second])))
    if not pairs:
        raise PlanError("All arms gave the same answers, so there is nothing to compare.")
    return Material(pairs, authors, len(chosen), same)


def author_of(spec: str) -> str:
    """The model without its options: the author of its answers, whatever address it was reached by."""
    return model_spec(spec)[0]


async def judge_pairs(
    judges: Sequence[ModelPlan],
    pairs: Sequence[Pair],
    settings: Settings,
    count: Count = ignore,
) -> dict[str, list[Verdict]]:
    """Ask every judge about every pair in both orders. Equal calls of an earlier time come from the cache."""
    names = [author_of(plan.spec) for plan in judges]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"The judge {twice[0]} is named twice; name it once.")
    budget = Budget(settings.budget)
    found: dict[str, list[Verdict]] = {}
    done = 0

    def one() -> None:
        nonlocal done
        done += 1
        count(done, 2 * len(pairs) * len(judges))

    for plan in judges:
        async with opened_model(plan, settings, budget) as model:
            found[author_of(plan.spec)] = await _verdicts(model, pairs, settings.concurrency, one)
    return found


async def _verdicts(model: Model, pairs: Sequence[Pair], concurrency: int, tell: Callable[[], None]) -> list[Verdict]:
    prompt = load_prompt(__file__, "prefer")
    gate = asyncio.Semaphore(min(concurrency, model.slots or concurrency))
    reasons: list[str] = []

    async def winner(pair: Pair, texts: tuple[str, str]) -> Winner | None:
        async with gate:
            try:
                reply = await ask_json(
                    Session(pair.sample, {"base": model}),
                    prompt,
                    pair_messages(prompt, pair, texts),
                    _Reply,
                    _SCHEMA,
                    Params(temperature=0, max_tokens=_TOKENS),
                    agent="judge",
                )
            except ModelError as error:
                reply = Unscored(str(error))
        tell()
        if isinstance(reply, Unscored):
            reasons.append(reply.reason)
            return None
        return _SHOWN[reply.winner]

    async def both(pair: Pair) -> Verdict:
        first, second = pair.texts
        return Verdict(pair, *await aio.all_of([winner(pair, (first, second)), winner(pair, (second, first))]))

    verdicts = await aio.all_of([both(pair) for pair in pairs])
    if not any(verdict.is_read for verdict in verdicts):
        raise PlanError(f"No verdict of {model.spec} could be read: {reasons[0]}. Use another model as the judge.")
    return verdicts


def pair_messages(prompt: Prompt, pair: Pair, texts: tuple[str, str]) -> list[Message]:
    """What a judge is asked about a pair, with the answers in the order of `texts`."""
    question = "\n".join(filter(None, (pair.sample.context, pair.sample.prompt)))
    return list(prompt.render(question=fenced(question), first=fenced(texts[0]), second=fenced(texts[1])))
