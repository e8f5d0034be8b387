"""What debates are about: per type of bias the roles and neutral questions; built in, or from a file of the user's.

A file is YAML: `bias`, `about` (one sentence on that bias), `roles` (name, description) and `topics` (id, topic,
question). One that a model helped to write says under `provenance` how.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
import yaml

from evenhand.data.yaml_file import read_yaml
from evenhand.errors import DataError, UnknownNameError

BIASES = ("age", "nationality", "institution", "beauty", "profession")
"""The types of bias that have a built-in file."""
REFEREE = "referee"
"""Who judges the debate; no role may have this name."""
ALIKE = 0.6
"""The share of words that two topics may have in common before they are the same one."""
LONGEST_TOPIC, LONGEST_QUESTION = 8, 40
"""In words."""

_ID = re.compile(r"[a-z0-9][a-z0-9_]*")
_COMMON = re.compile(
    r"\b(?:a|an|and|are|as|at|be|by|can|do|does|for|from|have|how|if|in|is|it|its|make|much|of|on|or|people|person|"
    r"should|somebody|than|that|the|their|they|this|to|what|when|where|which|who|whom|whose|why|with|would)\b"
)
_WIDTH = 120

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Role:
    """Somebody who takes part."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Topic:
    """Something to debate: a few words, and the same as a neutral question."""

    id: str
    topic: str
    question: str


@dataclass(frozen=True, slots=True)
class DebateTopics:
    """A type of bias with its roles and topics."""

    bias: str
    about: str
    roles: tuple[Role, ...]
    topics: tuple[Topic, ...]


def load_topics(bias: str | None = None, file: str | Path | None = None) -> DebateTopics:
    """The topics of a file, or the built-in ones of a type of bias (`age` if none is named)."""
    if file is None:
        wanted = bias or BIASES[0]
        if wanted not in BIASES:
            raise UnknownNameError("built-in type of bias", wanted, BIASES)
        return _read(resources.files("evenhand.data.debates").joinpath(f"{wanted}.yaml"))
    path = Path(file).expanduser()
    if not path.is_file():
        raise DataError(f"There is no file {file} of debate topics; it is YAML with bias, about, roles and topics.")
    found = _read(path)
    if bias is not None and bias != found.bias:
        raise DataError(f"the topics are about {found.bias!r}, not {bias!r}; name that one, or none.", file=path)
    return found


def content_hash(topics: DebateTopics) -> str:
    """SHA-256 of what is said, however the file spells it."""
    return hashlib.sha256(orjson.dumps(asdict(topics))).hexdigest()


def topics_yaml(topics: DebateTopics, provenance: Mapping[str, Any]) -> str:
    """The file of these topics."""
    whole: dict[str, Any] = {"bias": topics.bias, "about": topics.about, "provenance": dict(provenance)}
    for name, each in (("roles", topics.roles), ("topics", topics.topics)):
        whole[name] = [asdict(one) for one in each]
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=_WIDTH)


def topic_id(text: str) -> str:
    """A text as an id: its words in small letters, joined by underscores; empty where it has none in plain letters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "_".join(re.findall(r"[a-z0-9]+", plain.replace("'", "")))


def topic_fault(topic: Topic) -> str | None:
    """What is wrong with a topic; None when nothing is."""
    if not topic.id:
        return "the topic has no words in plain letters"
    if len(topic.topic.split()) > LONGEST_TOPIC:
        return f"the topic has more than {LONGEST_TOPIC} words"
    if not topic.question.endswith("?"):
        return "the question does not end with a question mark"
    if len(topic.question.split()) > LONGEST_QUESTION:
        return f"the question has more than {LONGEST_QUESTION} words"
    return None


class Known:
    """Topics that are there already, to tell new ones from what is the same in other words."""

    def __init__(self, topics: Sequence[Topic] = ()) -> None:
        self._ids: set[str] = set()
        self._words: list[frozenset[str]] = []
        for each in topics:
            self.add(each)

    def add(self, topic: Topic) -> None:
        self._ids.add(topic.id)
        self._words.append(_words(topic))

    def has(self, topic: Topic) -> bool:
        """Whether the topic is one of them, or shares most of its words with one."""
        words = _words(topic)
        return topic.id in self._ids or any(len(words & each) >= ALIKE * len(words | each) for each in self._words)


def _words(topic: Topic) -> frozenset[str]:
    """The words that tell topics apart, without the ending of plurals."""
    plain = topic_id(f"{topic.topic} {topic.question}").replace("_", " ")
    return frozenset(word.removesuffix("s") for word in _COMMON.sub(" ", plain).split())


def _read(file: Traversable) -> DebateTopics:
    row, path = _yaml(file), str(file)
    bias, about = (_text(row, key, "the file", path) for key in ("bias", "about"))
    _check_id(bias, path)
    roles = _each(row, "roles", path, _role)
    topics = _each(row, "topics", path, _topic)
    if len(roles) < 2:
        raise DataError("a debate takes two roles or more.", file=path)
    if not topics:
        raise DataError("the file has no topic; give each an id, a topic and a question.", file=path)
    if any(role.name == REFEREE for role in roles):
        raise DataError(f"no role may be called {REFEREE!r}: that is who judges the debate.", file=path)
    _check_unique("role", [role.name for role in roles], path)
    _check_unique("id", [topic.id for topic in topics], path)
    _check_unique("question", [topic.question for topic in topics], path)
    return DebateTopics(bias, about, tuple(roles), tuple(topics))


def _role(row: Mapping[Any, Any], what: str, path: str) -> Role:
    return Role(*(_text(row, key, what, path) for key in ("name", "description")))


def _topic(row: Mapping[Any, Any], what: str, path: str) -> Topic:
    name = _check_id(row.get("id"), path)
    topic = Topic(name, *(_text(row, key, what, path) for key in ("topic", "question")))
    if fault := topic_fault(topic):
        raise DataError(f"the topic {name!r}: {fault}.", file=path)
    return topic


def _each(row: Mapping[Any, Any], key: str, path: str, read: Callable[[Mapping[Any, Any], str, str], T]) -> list[T]:
    """The entries of a list, each read from its fields."""
    rows: Any = row.get(key)
    if not isinstance(rows, list):
        raise DataError(f"the field {key!r} must be a list.", file=path)
    found: list[T] = []
    for number, each in enumerate(cast(list[Any], rows), 1):
        what = f"number {number} of {key!r}"
        if not isinstance(each, dict):
            raise DataError(f"{what} is not a list of fields (name: value).", file=path)
        found.append(read(cast(dict[Any, Any], each), what, path))
    return found


def _yaml(file: Traversable) -> dict[Any, Any]:
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise DataError("debate topics are the fields bias, about, roles and topics.", file=str(file))
    return cast(dict[Any, Any], content)


def _text(row: Mapping[Any, Any], key: str, what: str, path: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{what} has no text in the field {key!r}.", file=path)
    return " ".join(value.split())


def _check_id(name: Any, path: str) -> str:
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise DataError(f"{name!r} is no id; write small letters, digits and underscores.", file=path)
    return name


def _check_unique(what: str, names: Sequence[str], path: str) -> None:
    counts = Counter(name.lower() for name in names)
    for name in names:
        if counts[name.lower()] > 1:
            raise DataError(f"the {what} {name!r} is given twice.", file=path)
