"""`evenhand debate --generate`: a file of topics in which a model's own follow those that are there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import orjson

from evenhand import aio
from evenhand.cli.progress import shown_count
from evenhand.data.debates import DebateTopics, content_hash, load_topics, topics_yaml
from evenhand.errors import UsageError
from evenhand.models.base import PROVIDERS, Model, split_spec
from evenhand.models.budget import FREE, Budget
from evenhand.models.cache import ResponseCache
from evenhand.models.fake import FunctionModel, estimate_tokens
from evenhand.runs.parts import Settings, loaded_model
from evenhand.runs.plan import ModelPlan
from evenhand.types import Message, Params, Usage
from evenhand.version import versions
from evenhand.workflows.topic_writer import BATCH, PROMPT, TEMPERATURE, TopicWriter

_SHOWN_REASONS = 5


@dataclass(frozen=True, slots=True)
class TopicsFile:
    """Where the topics go, which of them are there already, and how many there must be."""

    path: Path
    start: DebateTopics
    count: int
    seed: int = 0

    @property
    def missing(self) -> int:
        return self.count - len(self.start.topics)

    def is_written(self) -> bool:
        """Whether an earlier command wrote these topics; a file that is anything else is refused."""
        if not self.path.exists():
            return False
        there = len(load_topics(self.start.bias, self.path).topics)
        if there < self.count:
            raise UsageError(
                f"{self.path} holds {there:,} topics, not {self.count:,}, and nothing is overwritten; name another "
                f"--topics-file, or begin with these: --data {self.path}."
            )
        return True

    def fill(self, plan: ModelPlan, settings: Settings) -> Usage:
        """Have a model write what is missing, and store all; what that took."""
        budget = Budget(settings.budget)
        with shown_count(self.missing) as tell:
            writer, fingerprint = aio.run(self._write(plan, settings, budget, tell))
        self.store(writer, fingerprint)
        click.echo(f"{self.path}: {len(writer.written):,} of {self.missing:,} further topics were written.")
        for reason, count in writer.dropped.most_common(_SHOWN_REASONS):
            click.echo(f"  left out: {count:,} × {reason}")
        return budget.spent

    def pretend(self) -> Sequence[tuple[Sequence[Message], Params]]:
        """Write it with a stand-in's topics; the requests that this took."""
        model = FunctionModel(_numbered(), features=("schema", "seed"))
        writer = TopicWriter(model, self.start, seed=self.seed)
        aio.run(writer.write(self.missing))
        self.store(writer, {})
        return model.requests

    async def _write(
        self, plan: ModelPlan, settings: Settings, budget: Budget, tell: Callable[[int], None]
    ) -> tuple[TopicWriter, Mapping[str, Any]]:
        cache = ResponseCache(settings.cache) if settings.cache else None
        try:
            async with loaded_model(plan, settings, cache, budget) as model:
                return await self._written_by(model, tell), model.fingerprint()
        finally:
            if cache is not None:
                cache.close()

    async def _written_by(self, model: Model, tell: Callable[[int], None]) -> TopicWriter:
        writer = TopicWriter(model, self.start, seed=self.seed)
        await writer.write(self.missing, tell)
        return writer

    def store(self, writer: TopicWriter, fingerprint: Mapping[str, Any]) -> None:
        """The topics from before, then the new ones, with how these were made."""
        facts: dict[str, Any] = {
            "model": dict(fingerprint),
            "prompt": {PROMPT.id: PROMPT.hash},
            "seed": self.seed,
            "temperature": TEMPERATURE,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            "began_with": {"topics": len(self.start.topics), "sha256": content_hash(self.start)},
            "asked": self.missing,
            "written": len(writer.written),
            "dropped": dict(writer.dropped.most_common()),
        }
        whole = replace(self.start, topics=(*self.start.topics, *writer.written))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Through JSON, so that what a model says of itself is plain values.
        text = topics_yaml(whole, orjson.loads(orjson.dumps(facts, default=str)))
        with self.path.open("x", encoding="utf-8") as file:
            file.write(text)


def print_writing(requests: Sequence[tuple[Sequence[Message], Params]], spec: str, settings: Settings) -> None:
    """What the topics take at least."""
    used = Usage(
        calls=len(requests),
        prompt_tokens=sum(estimate_tokens(each.content) for messages, _ in requests for each in messages),
        completion_tokens=sum(params.max_tokens or 0 for _, params in requests),
    )
    price = settings.prices.get(spec) or (FREE if PROVIDERS.get(split_spec(spec)[0]).free else None)
    money = "price unknown" if price is None else f"${price.of(used):,.2f}"
    click.echo(
        f"Topics first: {used.calls:,} calls, about {used.prompt_tokens:,} tokens sent, at most "
        f"{used.completion_tokens:,} in replies, money at most: {money}; more where topics come twice."
    )


def _numbered() -> Callable[[Sequence[Message], Params], str]:
    """A stand-in whose topics are never the same."""
    calls = 0

    def reply(_messages: Sequence[Message], _params: Params) -> str:
        nonlocal calls
        calls += 1
        names = [f"t{calls}x{place}" for place in range(BATCH)]
        ideas = [{"topic": name, "question": f"{name} {name}a {name}b?"} for name in names]
        return orjson.dumps({"topics": ideas}).decode()

    return reply
