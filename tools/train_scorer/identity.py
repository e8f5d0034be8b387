"""Sentences about people, from identity.yaml: counter-examples for training, and the test of false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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


KINDS = ("neutral", "grave", "unkind", "threatening")


def training_sentences() -> list[Sentence]:
    """Every training template with every training group, and the contrasting sentences without groups."""
    spec = _spec()
    named = [s for kind in KINDS for s in _fill(spec[kind], kind, groups())]
    plain = [Sentence(text, f"contrast_{kind}", None) for kind, texts in spec["contrast"].items() for text in texts]
    return named + plain


def held_out_sentences(kind: str, section: str = "groups") -> list[Sentence]:
    """Held-out templates of a kind with the groups of a section of the file."""
    return _fill(_spec()[f"held_out_{kind}"], kind, groups(section))


def templates(section: str) -> list[str]:
    """The templates of a section of the file."""
    return _spec()[section]


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
