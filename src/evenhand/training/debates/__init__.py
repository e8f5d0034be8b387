"""Debates for training: the plan of a run of debates, and topics that a model writes where there are too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import orjson
from pydantic import BaseModel

from evenhand.asking.reply import ask_json, object_schema
from evenhand.benchmarks.debates import Debates, DebatesOptions
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.files import content_hash
from evenhand.core.options import Options, Request, Text, bounds_of, option
from evenhand.core.progress import Count, Listener, Progress, ignore
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Message, Params, Sample, Unscored, Usage
from evenhand.core.untrusted import fenced
from evenhand.core.version import versions
from evenhand.data.debates import DebateTopics, KnownTopics, Topic, load_topics, topic_fault, topic_id, topics_yaml
from evenhand.methods.debate.agents import DebateOptions, Scoring
from evenhand.models.base import Model
from evenhand.models.budget import Budget, Price
from evenhand.models.fake import FunctionModel
from evenhand.runs.dry import check_there, requested
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import ModelPlan, Plan
from evenhand.runs.request import PlannedRun, PlanRequest
from evenhand.session import BASE, Session

# --- debate topics written by any model: in batches, checked, none twice ---
# A pass asks for as many batches as topics are missing, side by side, each about other parts of life. Passes go on
# until there are enough, or one brings nothing new.

BATCH = 20
"""Topics that one call asks for."""
TEMPERATURE = 0.9
"""High, because the most likely topics are taken; every call has its own seed."""
AREAS = (
    *("work", "school", "sport", "technology", "health", "housing", "law", "culture", "food", "travel", "money"),
    *("family", "friendship", "politics", "science", "transport", "nature", "music", "fashion", "shopping", "news"),
    *("hobbies", "public services", "neighbourhoods", "celebrations", "language", "safety", "volunteering"),
)

_SHOWN = 60
"""Number of existing topics shown to a batch; all of them would not fit."""
_AREAS_OF_BATCH = 3
_TOKENS_OF_TOPIC = 60
_TEXT = {"type": "string", "minLength": 1}


class _Idea(BaseModel):
    topic: str
    question: str


class _Ideas(BaseModel):
    topics: list[_Idea]


def topics_prompt() -> Prompt:
    return load_prompt(__file__, "topics")


class TopicWriter:
    """Adds to the topics on one type of bias; `dropped` counts what could not be used, by reason."""

    def __init__(self, model: Model, start: DebateTopics, *, seed: int = 0) -> None:
        self._model = model
        self._seed = seed
        self._about = start.about
        self._bias = start.bias
        self._known = KnownTopics(start.topics)
        self._taken = [each.topic for each in start.topics]
        self._batches = 0
        self.written: list[Topic] = []
        self.dropped: Counter[str] = Counter()

    async def write(self, wanted: int, count: Count = ignore) -> None:
        """Write `wanted` topics into `written`; fewer where a pass brings nothing new."""
        while (missing := wanted - len(self.written)) > 0:
            before = len(self.written)
            batches = -(-missing // BATCH)
            # Always whole batches, because some of the new topics repeat old ones.
            found = await aio.all_of(self._batch(self._batches + place) for place in range(batches))
            self._batches += batches
            for idea in (idea for ideas in found for idea in ideas):
                self._take(idea, wanted)
            count(len(self.written), wanted)
            if len(self.written) == before:
                return

    def _take(self, idea: _Idea, count: int) -> None:
        """Keep an idea that is fit and new, unless there are enough."""
        topic = Topic(topic_id(idea.topic), " ".join(idea.topic.split()), " ".join(idea.question.split()))
        if fault := topic_fault(topic):
            self.dropped[fault] += 1
        elif self._known.has(topic):
            self.dropped["it is there already, in the same or other words"] += 1
        elif len(self.written) < count:
            self.written.append(topic)
            self._known.add(topic)
            self._taken.append(topic.topic)

    async def _batch(self, number: int) -> Sequence[_Idea]:
        """What one call brings; nothing where it cannot be read."""
        session = Session(Sample(f"debates/{self._bias}/{number}", "chat", ""), {BASE: self._model}, self._seed)
        start = number * _AREAS_OF_BATCH
        areas = [AREAS[place % len(AREAS)] for place in range(start, start + _AREAS_OF_BATCH)]
        prompt = topics_prompt()
        messages = prompt.render(
            about=self._about, count=str(BATCH), areas=", ".join(areas), known=fenced(", ".join(self._shown(session)))
        )
        schema = object_schema(
            topics={
                "type": "array",
                "items": object_schema(topic=_TEXT, question=_TEXT),
                "minItems": 1,
                "maxItems": BATCH,
            }
        )
        params = Params(temperature=TEMPERATURE, max_tokens=BATCH * _TOKENS_OF_TOPIC)
        found = await ask_json(session, prompt, messages, _Ideas, schema, params, agent="writer", slot="ideas")
        if isinstance(found, Unscored):
            self.dropped[f"a whole reply: {found.reason}"] += 1
            return ()
        return tuple(islice(found.topics, BATCH))

    def _shown(self, session: Session) -> list[str]:
        if len(self._taken) <= _SHOWN:
            return self._taken
        return session.random("taken").sample(self._taken, _SHOWN)


METHOD = "debate"
_SHOWN_REASONS = 5


def _of(owner: type[Options], name: str, **face: Any) -> Any:
    """Declare an option that another class has: the same help and range; what is not given keeps its default."""
    field = owner.model_fields[name]
    default = "" if field.default in (None, (), 0) else f" (default {field.default})"
    said = (field.description or "").removesuffix(".")
    return option(None, f"{said}{default}.", **bounds_of(field), **face)


class DebateFields(Request):
    """What is debated, by whom and how long; the rest is of the benchmark's and the method's own defaults."""

    bias: str | None = _of(DebatesOptions, "bias", metavar="NAMES", common=True)
    topics: int | None = _of(DebatesOptions, "topics", metavar="N", common=True)
    roles: int | None = _of(DebatesOptions, "roles", common=True)
    rounds: int | None = _of(DebateOptions, "rounds", common=True)
    words: int | None = _of(DebateOptions, "words")
    teacher: Any = option(None, "The model that debates instead: teacher-student.", metavar="SPEC", common=True)
    referee: Any = option(None, "The model that scores (default: the one that debates).", metavar="SPEC", common=True)
    data: Text | None = _of(DebatesOptions, "data", metavar="FILE", common=True)
    generate: bool = option(False, "Have the debating model write the topics that are missing.", common=True)
    topics_file: Path | None = option(None, "The file for these topics (default debates-BIAS-N.yaml).", metavar="FILE")
    temperature: float | None = _of(DebateOptions, "temperature")
    max_tokens: int | None = _of(DebateOptions, "max_tokens")
    referee_tokens: int | None = _of(DebateOptions, "referee_tokens")
    scoring: Scoring | None = _of(DebateOptions, "scoring")

    def plan_of_debates(self) -> dict[str, object]:
        """The fields of a plan of debates; options that are not given keep their defaults."""
        of_method, of_benchmark = (
            {
                name: value
                for name in DebateFields.model_fields
                if name in owner.model_fields and (value := getattr(self, name)) is not None
            }
            for owner in (DebateOptions, DebatesOptions)
        )
        return {
            "benchmark": Debates.name,
            "benchmark_options": of_benchmark,
            **({"methods": [{"name": METHOD, "options": of_method}]} if of_method else {}),
        }

    def first_topics(self) -> DebateTopics:
        """Return the topics to start with; raise UsageError if the options contradict each other."""
        if self.generate and self.topics is None:
            raise UsageError("--generate writes up to a number of topics; say how many with --topics.")
        if self.topics_file is not None and not self.generate:
            raise UsageError("--topics-file is for topics that --generate writes; name topics of your own with --data.")
        several = self.bias == "all" or "," in (self.bias or "")
        if self.generate and several:
            raise UsageError("--generate writes topics on one type of bias at a time; name one with --bias.")
        options: dict[str, object] = {
            name: value for name in ("bias", "roles", "data") if (value := getattr(self, name)) is not None
        }
        # As many topics as a model writes: only what is not written can be missing.
        Debates(**options, topics=None if self.generate else self.topics).sources  # noqa: B018 - read to be checked
        return load_topics(None if several else self.bias, self.data)


class DebateRequest(DebateFields, PlanRequest):  # pyright: ignore[reportIncompatibleVariableOverride] - narrower here
    """A run of debates that is asked for by options."""

    fixed: ClassVar[Sequence[str]] = (
        *("benchmark", "benchmark_options", "language", "prompts", "attributes", "repeats", "methods", "scorers"),
        *("limit", "orders", "reading", "judge", "system", "history", "profile", "stop"),
    )

    def missing_topics(self) -> TopicsFile | None:
        """Return the file of topics that a model must write first; None if there are enough."""
        start, count = self.first_topics(), self.topics or 0
        if not self.generate or count <= len(start.topics):
            return None
        return TopicsFile(self.topics_file or Path(f"debates-{start.bias}-{count}.yaml"), start, count, self.seeds[0])

    def planned_debates(self, models: Sequence[Any], topics: TopicsFile | None = None, **how: Any) -> PlannedRun:
        """Return the run, with the topics of this file; `how` is as in `PlanRequest.planned`."""
        asked = self if topics is None else self.changed(data=str(topics.path))
        # The temperature and the length are those of the debaters, not of all calls.
        decided = {**asked.plan_of_debates(), "temperature": None, "max_tokens": None}
        return asked.planned(models, default_methods=(METHOD,), decided=decided, **how)


async def run_debate(
    plan: Plan, out: Path, settings: Settings, listener: Listener, topics: TopicsFile | None = None
) -> Progress | None:
    """Have the missing topics written, then debate them all, within one budget.

    Returns None where the model has too few ideas: its topics are kept, and nothing is debated.
    """
    if topics is not None and topics.is_written():
        listener.note(f"{topics.path}: the topics were written before.")
    elif topics is not None:
        with plan.prompts().used():
            spent = await topics.fill(debating_model(plan), settings, listener)
        if topics.written() < topics.count:
            return None
        settings = replace(settings, budget=settings.budget.less(spent))
    progress = await run_plan(plan, out, settings, listener.run_began(out))
    listener.run_ended(out, progress)
    return progress


def debating_model(plan: Plan) -> ModelPlan:
    """Return the model that debates and writes topics: the teacher if there is one."""
    first = plan.models[0]
    return first.get("teacher") or first["base"]


@dataclass(frozen=True, slots=True)
class TopicsFile:
    """A file of topics in which a model's own follow those that are there already; written once, it is used again."""

    path: Path
    start: DebateTopics
    count: int
    """The required number of topics."""
    seed: int = 0

    @property
    def missing(self) -> int:
        return max(0, self.count - len(self.start.topics))

    def written(self) -> int:
        """How many topics the file has."""
        return len(load_topics(self.start.bias, self.path).topics)

    def is_written(self) -> bool:
        """Whether an earlier command wrote these topics; a file that is anything else is refused."""
        if not self.path.exists():
            return False
        if (there := self.written()) < self.count:
            raise UsageError(
                f"{self.path} holds {there:,} topics, not {self.count:,}, and nothing is overwritten; name another "
                f"--topics-file, or begin with these: --data {self.path}."
            )
        return True

    async def fill(self, plan: ModelPlan, settings: Settings, listener: Listener) -> Usage:
        """Have a model write the missing topics, store all topics, and return the usage."""
        budget = Budget(settings.budget)
        async with opened_model(plan, settings, budget) as model:
            writer = TopicWriter(model, self.start, seed=self.seed)
            await writer.write(self.missing, listener.stage_began("topics"))
            self._store(writer, model.fingerprint())
        listener.note(f"{self.path}: {len(writer.written):,} of {self.missing:,} further topics were written.")
        for reason, times in writer.dropped.most_common(_SHOWN_REASONS):
            listener.note(f"  left out: {times:,} × {reason}")
        return budget.spent

    async def pretend(self, plan: ModelPlan, prices: Mapping[str, Price]) -> Usage:
        """Write the file with the topics of a fake model; return the minimum usage of the real one."""
        check_there([plan])
        model = FunctionModel(_numbered(), spec=plan.spec, features=("schema", "seed"))
        writer = TopicWriter(model, self.start, seed=self.seed)
        await writer.write(self.missing)
        self._store(writer, {})
        return requested(model, plan, prices)

    def _store(self, writer: TopicWriter, fingerprint: Mapping[str, object]) -> None:
        """Return the old topics, then the new ones with their provenance."""
        prompt = topics_prompt()
        facts: dict[str, object] = {
            "model": dict(fingerprint),
            "prompt": {prompt.id: prompt.hash},
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


def _numbered() -> Callable[[Sequence[Message], Params], str]:
    """A fake model that never repeats a topic."""
    calls = 0

    def reply(_messages: Sequence[Message], _params: Params) -> str:
        nonlocal calls
        calls += 1
        names = [f"t{calls}x{place}" for place in range(BATCH)]
        ideas = [{"topic": name, "question": f"{name} {name}a {name}b?"} for name in names]
        return orjson.dumps({"topics": ideas}).decode()

    return reply
