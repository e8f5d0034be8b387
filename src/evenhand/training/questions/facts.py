"""Questions about facts, without people to choose from: when, where, how many, of what.

They keep a model that learns not to guess from no longer answering what a passage does tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from random import Random
from typing import Any

from evenhand.data.yaml_file import read_yaml
from evenhand.training.questions.language import FACTS, Person, Situation, Split, capitalized, of_split
from evenhand.training.questions.passages import Passage


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing asked about: as a question, as a clause, and as a statement with the place {v} for its value."""

    question: str
    clause: str
    statement: str


def draw_fact(rng: Random, split: Split, right: int, first: int, *, told: bool) -> tuple[Situation, Passage, Fact]:
    """Draw a passage about one subject or two, and a question about the first; `right` is the place of the answer."""
    kind = rng.choice(list(_kinds().values()))
    subject, other = rng.sample(of_split(kind["subjects"], split), 2)
    asked, *rest = rng.sample(kind["attributes"], 4)
    statement, question, clause, values = asked
    chosen = rng.sample(values, 2)
    sentences = [_said(rng, each, subject) for each in rest[: rng.randint(1, 3)]]
    evidence = ""
    if told:
        evidence = _statement(statement, subject, chosen[right])
        sentences.append(evidence)
    if rng.random() < 0.4:
        # The same fact about something else.
        sentences.append(_statement(statement, other, chosen[1 - right]))
    rng.shuffle(sentences)
    people = tuple(Person(each, each, each, (each,), (first + place) % 2) for place, each in enumerate(chosen))
    situation = Situation(f"{FACTS}: {subject}", "", (), ((), ()), (), lasting=True, things=(), split=split)
    passage = Passage(" ".join(sentences), evidence, people, right if told else None, settled=told)
    return situation, passage, Fact(question.format(it=subject), clause.format(it=subject), _filled(statement, subject))


def _said(rng: Random, attribute: Sequence[Any], subject: str) -> str:
    return _statement(attribute[0], subject, rng.choice(attribute[3]))


def _statement(template: str, subject: str, value: str) -> str:
    return _filled(template, subject).format(v=value)


def _filled(template: str, subject: str) -> str:
    return capitalized(template.format(It=subject, it=subject, v="{v}"))


@cache
def _kinds() -> Mapping[str, Mapping[str, Any]]:
    return read_yaml(resources.files("evenhand.training.questions.texts") / "en.facts.yaml")
