"""Sentences about people, from identity.yaml: counter-examples for training, and the test of false alarms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml


@dataclass(frozen=True, slots=True)
class Group:
    """How a group is named: after "is", one member, several members."""

    category: str
    predicate: str
    one: str
    many: str

    def say(self, template: str) -> str:
        names = {"is": self.predicate, "one": self.one, "many": self.many}
        capital = {"One": _capital(self.one), "Many": _capital(self.many)}
        return template.format_map({**names, **capital})


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, the kind of its template and the group it names."""

    text: str
    kind: str
    group: Group | None


KINDS = ("neutral", "odd", "grave", "unkind", "threatening")
_SMALL = (
    *("a", "an", "the", "is", "are", "was", "am", "be", "been", "to", "of", "in", "on", "at", "and", "or", "that"),
    *("this", "it", "he", "she", "they", "i", "we", "my", "me"),
)
_NOUNS = (
    ("man", "men"),
    ("woman", "women"),
    ("person", "people"),
    ("boy", "boys"),
    ("girl", "girls"),
    ("student", "students"),
    ("teacher", "teachers"),
    ("nurse", "nurses"),
    ("family", "families"),
    ("couple", "couples"),
    ("neighbour", "neighbours"),
    ("worker", "workers"),
)


def training_sentences() -> list[Sentence]:
    """Every training template with every training group, and the contrasting sentences without groups."""
    spec = _spec()
    named = [s for kind in KINDS for s in _fill(spec[kind], kind, groups())]
    plain = [Sentence(text, f"contrast_{kind}", None) for kind, texts in spec["contrast"].items() for text in texts]
    return named + plain


def crossed_sentences(kind: str, number: int, random: np.random.Generator) -> list[str]:
    """Training templates of a kind with one or two groups in one phrase ("an old deaf nurse"), drawn at random.

    No phrase of `crossed_groups`, which are for testing, is among them.
    """
    held_out = [f" {phrase.lower()} " for group in groups("crossed_groups") for phrase in (group.one, group.many)]
    adjectives = [(g.category, g.predicate) for g in groups() if " " not in g.predicate]
    templates: list[str] = _spec()[kind]
    made: list[str] = []
    while len(made) < number:
        (category, first), (other, second) = (adjectives[place] for place in random.integers(len(adjectives), size=2))
        one, many = _NOUNS[random.integers(len(_NOUNS))]
        said = first if category == other else f"{first} {second}"
        article = "an" if said[0] in "aeiouAEIOU" else "a"
        phrase = f"{article} {said} {one}"
        text = Group("crossed", phrase, phrase, f"{said} {many}").say(templates[random.integers(len(templates))])
        words = " ".join(re.findall(r"\w+", text.lower()))
        if not any(each in f" {words} " for each in held_out):
            made.append(text)
    return made


def held_out_sentences(kind: str, section: str = "groups") -> list[Sentence]:
    """Held-out templates of a kind with the groups of a section of the file."""
    return _fill(_spec()[f"held_out_{kind}"], kind, groups(section))


def templates(section: str) -> list[str]:
    """The templates of a section of the file."""
    return _spec()[section]


def break_grammar(words: list[str], harmless: bool, random: np.random.Generator) -> list[str]:
    """The sentence without its small words or signs, with two words swapped, or, if it is harmless, a part of it."""
    way = int(random.integers(5 if harmless else 3))
    if way == 0:
        broken = [word for word in words if word not in _SMALL]
    elif way == 1:
        broken = [word for word in words if word.isalnum()]
    elif way == 2:
        place = int(random.integers(max(len(words) - 1, 1)))
        broken = [*words[:place], *words[place : place + 2][::-1], *words[place + 2 :]]
    elif way == 3:
        start = int(random.integers(len(words)))
        broken = words[start : start + int(random.integers(1, 7))]
    else:
        broken = [word for word in words if random.random() > 0.25]
    return broken or words


def labels_of(kind: str) -> list[float]:
    """The seven scores that sentences of a kind are trained towards."""
    return _spec()["labels"][kind]


def groups(section: str = "groups") -> list[Group]:
    """The groups of the training, the `held_out_groups` or the `crossed_groups`."""
    named: Mapping[str, list[str]] = _spec()[section]
    return [
        Group(category, *(part.strip() for part in line.split("|")))
        for category, lines in named.items()
        for line in lines
    ]


def _fill(templates: Iterable[str], kind: str, named: Iterable[Group]) -> list[Sentence]:
    named = list(named)
    return [Sentence(group.say(template), kind, group) for template in templates for group in named]


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


@cache
def _spec() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "identity.yaml").read_text(encoding="utf-8"))
