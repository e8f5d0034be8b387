"""Writes debate topics with any model: in batches, checked, and without what is there already in these or other words.

A pass asks for as many batches as topics are missing, side by side, each about other parts of life. Passes go on until
there are enough, or one brings nothing new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from pydantic import BaseModel

from evenhand.asking.reply import ask_json, object_schema
from evenhand.core import aio
from evenhand.core.progress import Count, ignore
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Params, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.data.debates import DebateTopics, KnownTopics, Topic, topic_fault, topic_id
from evenhand.models.base import Model
from evenhand.session import BASE, Session

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
