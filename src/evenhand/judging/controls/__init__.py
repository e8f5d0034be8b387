"""Controls: texts of known value, which show whether a judge or scorer can see what it rates.

A file for each construct holds pairs of texts that are alike but for what is rated, and texts that have no value:
refusals, nonsense, answers beside the question. Half of the pairs is held out: no prompt was tuned on it. All are our
own words.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from evenhand.core.errors import check_names
from evenhand.data.rubrics import BuiltInControls, Criterion, Rubrics

LOW, SHUFFLED, OTHER = "low", "shuffled", "other"
"""Texts that should rate low: written so, a good one with its words in another order, one that belongs elsewhere."""
REFUSAL, NONSENSE, OFF_TOPIC = "refusal", "nonsense", "off_topic"
"""Texts without a value of their own: none of them may rate like a text with the property."""
SHORT, LONG, LANGUAGE = "short", "long", "language"
"""Texts of known value that are very short, very long, or not in English."""
WORTHLESS = (REFUSAL, NONSENSE, OFF_TOPIC)
UNUSUAL = (SHORT, LONG, LANGUAGE)
_HIGH = ("high", "mild", "open")
_APART = 5
"""A continuation that belongs elsewhere is that of the pair this many places on."""


class Controls(NamedTuple):
    """Which controls show that a rating works: a construct, and the texts of it that should rate low."""

    construct: str | Construct
    """Its name, or the construct itself if its texts come from a rubric."""
    low: tuple[str, ...] = (LOW,)
    worthless: tuple[str, ...] = (REFUSAL, NONSENSE)
    """Texts that must not rate like those with the property; a refusal is well written, so fluency leaves it out."""


@dataclass(frozen=True, slots=True)
class Control:
    """A text of known value."""

    text: str
    context: str
    """The question that it answers, or the text that it continues."""
    kind: str
    high: bool | None
    """Whether it should rate high; None for a text without a value."""
    group: str = ""
    held_out: bool = False

    @property
    def words(self) -> int:
        return len(self.text.split())


class Ask(NamedTuple):
    """One question in two wordings to be answered with yes or no, and one that compares two texts."""

    yes: str
    """Yes means a high rating."""
    no: str
    """Yes means a low rating."""
    more: str


@dataclass(frozen=True, slots=True)
class Construct:
    """What is rated, and its controls."""

    name: str
    high: str
    """What a text that should rate high is, in a word: prejudiced, good, toxic."""
    low: str
    controls: tuple[Control, ...]
    asks: Mapping[str, Ask]
    """The kind of texts that should rate low → the questions that tell them apart."""
    reference: str
    """A text in the middle, to compare others with."""
    version: str

    def of(self, wanted: Controls) -> list[Control]:
        """Return the controls of one rating."""
        kinds = {*_HIGH, *wanted.low, *wanted.worthless}
        if LOW in wanted.low:  # unusual texts are written with that contrast
            kinds |= {*UNUSUAL, OFF_TOPIC}
        return [each for each in self.controls if each.kind in kinds]


def construct(name: str | Construct) -> Construct:
    return name if isinstance(name, Construct) else _built_in(name)


def rubric_controls(rubric: Rubrics) -> dict[str, Controls]:
    """Return the controls of a rubric's criteria: built-in ones, or those made of their texts of known value."""
    found = {each.name: _controls_for(each, rubric.scale) for each in rubric.criteria}
    return {name: each for name, each in found.items() if each is not None}


def _controls_for(criterion: Criterion, scale: int) -> Controls | None:
    given = criterion.controls
    if isinstance(given, BuiltInControls):
        known = [each.stem for each in sorted(Path(__file__).parent.glob("*.yaml"))]
        check_names("construct with controls", known, given.texts)
        return Controls(given.texts, given.low, given.worthless)
    if not given:
        return None
    texts = [
        Control(each.text, each.question, "high" if 2 * each.rating > scale else LOW, 2 * each.rating > scale)
        for each in given
    ]
    nearer = "Is the text nearer to “{}” than to “{}”?"
    ask = Ask(
        nearer.format(criterion.high, criterion.low),
        nearer.format(criterion.low, criterion.high),
        f"Which of the two texts is nearer to “{criterion.high}”?",
    )
    middle = min(criterion.examples, key=lambda each: abs(2 * each.rating - scale), default=None)
    version = hashlib.sha256(repr(given).encode()).hexdigest()[:16]
    reference = texts[0].text if middle is None else middle.text
    return Controls(
        Construct(criterion.name, criterion.high, criterion.low, tuple(texts), {LOW: ask}, reference, version)
    )


@cache
def _built_in(name: str) -> Construct:
    path = Path(__file__).with_name(f"{name}.yaml")
    content = path.read_bytes()
    read: Mapping[str, Any] = yaml.safe_load(content)
    return Construct(
        name,
        read["high"],
        read["low"],
        tuple(_controls(read)),
        {kind: Ask(**each) for kind, each in read["ask"].items()},
        read["reference"],
        hashlib.sha256(content).hexdigest()[:16],
    )


def _controls(read: Mapping[str, Any]) -> Iterator[Control]:
    pairs: Sequence[Mapping[str, Any]] = read["pairs"]
    for number, pair in enumerate(pairs):
        about = (str(pair.get("group", "")), bool(pair.get("held_out", False)))
        for kind in (each for each in (*_HIGH, LOW) if each in pair):
            yield Control(pair[kind], pair["context"], kind, kind != LOW, *about)
        if "high" in pair:
            moved = pairs[(number + _APART) % len(pairs)]["high"]
            yield Control(_shuffled(pair["high"], number), pair["context"], SHUFFLED, False, *about)
            yield Control(moved, pair["context"], OTHER, False, *about)
    for kind in WORTHLESS:
        for each in read.get(kind, ()):
            yield Control(each["text"], each["context"], kind, None)
    for kind in UNUSUAL:
        for each in read.get(kind, ()):
            for value in (value for value in (*_HIGH, LOW) if value in each):
                yield Control(each[value], each["context"], kind, value != LOW)


def _shuffled(text: str, seed: int) -> str:
    words = text.split()
    random.Random(seed).shuffle(words)
    return " ".join(words)
