"""Loads debate topics: for each type of bias its roles and neutral questions, built in or from a user's file.

A file is YAML: `bias`, `about` (one sentence on that bias), `roles` (name, description) and `topics` (id, topic,
question). A generated file also has `provenance`. A folder has a file BIAS.yaml for each type.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, TypeAdapter

from evenhand.core.errors import DataError, check_names
from evenhand.core.files import Id, Words, checked, read_yaml

BIASES = ("age", "nationality", "institution", "beauty", "profession")
"""The types of bias that have a built-in file."""
REFEREE = "referee"
"""The name of the judge of a debate; reserved."""
ALIKE = 0.6
"""Topics that share at least this share of their words count as the same."""
LONGEST_TOPIC, LONGEST_QUESTION = 8, 40
"""Most words."""

_COMMON = re.compile(
    r"\b(?:a|an|and|are|as|at|be|by|can|do|does|for|from|have|how|if|in|is|it|its|make|much|of|on|or|people|person|"
    r"should|somebody|than|that|the|their|they|this|to|what|when|where|which|who|whom|whose|why|with|would)\b"
)
_WIDTH = 120
_FORM = "It needs the fields bias, about, roles and topics."
Line = Annotated[Words, AfterValidator(lambda text: " ".join(text.split()))]
"""A text on one line."""


@dataclass(frozen=True, slots=True)
class Role:
    """A participant of a debate."""

    name: Line
    description: Line


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in a few words and as a neutral question."""

    id: Id
    topic: Line
    question: Line


@dataclass(frozen=True, slots=True)
class DebateTopics:
    """A type of bias with its roles and topics."""

    bias: Id
    about: Line
    roles: tuple[Role, ...]
    topics: tuple[Topic, ...]


def load_topics(bias: str | None = None, file: str | Path | None = None) -> DebateTopics:
    """Load the topics of a file, or of a type of bias: from a folder, or the built-in ones (default: `age`)."""
    if file is None:
        name = bias or BIASES[0]
        check_names("built-in type of bias", BIASES, name)
        return _builtin(name)
    path = Path(file).expanduser()
    if path.is_dir():
        if bias is None:
            raise DataError(f"{file} is a folder of topics; name the types of bias, e.g. {BIASES[0]}.")
        path /= f"{bias}.yaml"
    if not path.is_file():
        raise DataError(f"There is no file {path}; write debate topics as YAML with bias, about, roles and topics.")
    topics = _read(path)
    if bias is not None and bias != topics.bias:
        raise DataError(
            f"the topics are about {topics.bias!r}, not {bias!r}; use that bias, or omit the option.", file=path
        )
    return topics


@cache
def _builtin(bias: str) -> DebateTopics:
    return _read(resources.files("evenhand.data.debates").joinpath(f"{bias}.yaml"))


def topics_yaml(topics: DebateTopics, provenance: Mapping[str, Any]) -> str:
    whole: dict[str, Any] = {"bias": topics.bias, "about": topics.about, "provenance": dict(provenance)}
    for name, each in (("roles", topics.roles), ("topics", topics.topics)):
        whole[name] = [asdict(one) for one in each]
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=_WIDTH)


def topic_id(text: str) -> str:
    """Turn a text into an id: lower-case ASCII words joined by underscores; "" if there are none."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "_".join(re.findall(r"[a-z0-9]+", plain.replace("'", "")))


def topic_fault(topic: Topic) -> str | None:
    """Return what is wrong with a topic, or None."""
    if not topic.id:
        return "the topic has no words in plain letters"
    if len(topic.topic.split()) > LONGEST_TOPIC:
        return f"the topic has more than {LONGEST_TOPIC} words"
    if not topic.question.endswith("?"):
        return "the question does not end with a question mark"
    if len(topic.question.split()) > LONGEST_QUESTION:
        return f"the question has more than {LONGEST_QUESTION} words"
    return None


class KnownTopics:
    """The topics so far, to recognise the same topic in other words."""

    def __init__(self, topics: Sequence[Topic] = ()) -> None:
        self._ids: set[str] = set()
        self._sizes: list[int] = []
        """How many words each topic has."""
        self._having: defaultdict[str, list[int]] = defaultdict(list)
        """Word → the places of the topics that have it: a topic is compared with few of thousands."""
        for each in topics:
            self.add(each)

    def add(self, topic: Topic) -> None:
        self._ids.add(topic.id)
        words = _words(topic)
        for word in words:
            self._having[word].append(len(self._sizes))
        self._sizes.append(len(words))

    def has(self, topic: Topic) -> bool:
        """Whether a topic is one of them or shares most of its words with one."""
        words = _words(topic)
        if topic.id in self._ids or (not words and 0 in self._sizes):
            return True
        shared = Counter(place for word in words for place in self._having.get(word, ()))
        return any(both >= ALIKE * (len(words) + self._sizes[place] - both) for place, both in shared.items())


def _words(topic: Topic) -> frozenset[str]:
    """Return the content words of a topic, without plural endings."""
    plain = topic_id(f"{topic.topic} {topic.question}").replace("_", " ")
    return frozenset(word.removesuffix("s") for word in _COMMON.sub(" ", plain).split())


_TOPICS = TypeAdapter(DebateTopics)


def _read(file: Traversable) -> DebateTopics:
    path = str(file)
    with checked("a file of debate topics", path, _FORM):
        found = _TOPICS.validate_python(read_yaml(file, _FORM))
    for topic in found.topics:
        if fault := topic_fault(topic):
            raise DataError(f"the topic {topic.id!r}: {fault}.", file=path)
    if len(found.roles) < 2 or not found.topics:
        raise DataError("a debate needs at least two roles and a topic.", file=path)
    if any(role.name == REFEREE for role in found.roles):
        raise DataError(f"no role may be called {REFEREE!r}, the name of the judge; rename it.", file=path)
    _check_unique("role", [role.name for role in found.roles], path)
    _check_unique("id", [topic.id for topic in found.topics], path)
    _check_unique("question", [topic.question for topic in found.topics], path)
    return found


def _check_unique(what: str, names: Sequence[str], path: str) -> None:
    counts = Counter(name.lower() for name in names)
    for name in names:
        if counts[name.lower()] > 1:
            raise DataError(f"the {what} {name!r} occurs twice.", file=path)
