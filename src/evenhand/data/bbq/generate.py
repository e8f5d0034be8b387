"""Generates the built-in question sets in BBQ's format from our own templates, in English and in Spanish.

Every template is filled with four pairs of people, and every fill gives eight rows: both orders of mention ×
ambiguous or disambiguated × both polarities. Counters determine which fact is true, which clause comes first, the
order of the answers and the wording of "unknown", so the set is balanced and identical on every machine.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from evenhand.core.files import read_yaml

CATEGORIES = (
    "Age",
    "Disability_status",
    "Gender_identity",
    "Nationality",
    "Physical_appearance",
    "Race_ethnicity",
    "Race_x_SES",
    "Race_x_gender",
    "Religion",
    "SES",
    "Sexual_orientation",
)
FILLS = 4

# Seven wordings and eight items per template: each wording rotates through every cell of the design.
UNKNOWN_ANSWERS = (
    "Cannot be determined",
    "Not enough information",
    "Not known",
    "Undetermined",
    "Can't answer",
    "Not enough info",
    "Unknown",
)
UNKNOWN_SPANISH = (
    "No se puede determinar",
    "No hay suficiente información",
    "No se sabe",
    "Sin determinar",
    "No se puede responder",
    "Falta información",
    "Desconocido",
)
# Positions of (stereotyped, other, unknown). Odd and even entries differ in which person is listed first;
# entry i has the unknown answer at i mod 3.
_POSITIONS = ((1, 2, 0), (2, 0, 1), (0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2))
# Start in _POSITIONS for (fill, order). Its parity depends on the fill's parity alone, so the order of the
# answers is independent of the order of mention and of the truth; one step per template balances the rest.
_POSITION_STARTS = ((0, 2), (1, 5), (4, 0), (3, 1))

_SENTENCE_START = re.compile(r"(?:^|(?<=[.?!] ))[a-z]")


@dataclass(frozen=True, slots=True)
class _Words:
    """What a language needs beside its templates."""

    folder: str
    categories: tuple[str, ...]
    articles: Mapping[str, str]
    """Indefinite → definite article."""
    joined: str
    """Two clauses with their contrast."""
    unknown: tuple[str, ...]
    version: str
    """Changes with the texts."""

    def definite(self, intro: str) -> str:
        """The form for a later mention: "a nurse" becomes "the nurse", a name stays."""
        article, space, rest = intro.partition(" ")
        return f"{self.articles[article]} {rest}" if space and article in self.articles else intro

    def bare(self, answer: str) -> str:
        article, space, rest = answer.partition(" ")
        return rest if space and article.lower() in self.articles.values() else answer


WORDS: Mapping[str, _Words] = {
    "en": _Words("builtin", CATEGORIES, {"a": "the", "an": "the"}, "{}, while {}.", UNKNOWN_ANSWERS, "evenhand-1"),
    "es": _Words(
        "builtin_es",
        tuple(name for name in CATEGORIES if not name.startswith("Race_x")),
        {"un": "el", "una": "la"},
        "{}, mientras que {}.",
        UNKNOWN_SPANISH,
        "evenhand-2",
    ),
}
"""By language."""


@dataclass(frozen=True, slots=True)
class _Person:
    intro: str
    definite: str
    group: str


@dataclass(frozen=True, slots=True)
class _Fill:
    """A template with its two people, shared by eight rows."""

    template: Mapping[str, Any]
    label_type: str
    stereotyped: _Person
    other: _Person
    words: _Words

    def context(self, *, stereotyped_first: bool) -> str:
        people = (self.stereotyped, self.other) if stereotyped_first else (self.other, self.stereotyped)
        return _sentence(self.template["context"].format(first=people[0].intro, second=people[1].intro))

    def fact(self, *, confirming: bool, bad_first: bool) -> str:
        """Return the disambiguating sentence; if `confirming`, the stereotyped person did the bad thing."""
        people = (self.stereotyped, self.other) if confirming else (self.other, self.stereotyped)
        bad = self.template["bad"].format(person=people[0].definite)
        good = self.template["good"].format(person=people[1].definite)
        return _sentence(self.words.joined.format(*((bad, good) if bad_first else (good, bad))))


@cache
def builtin_rows(language: str = "en") -> tuple[Mapping[str, Any], ...]:
    """Return all rows in a stable order, with the official fields plus `target_loc` and `label_type`."""
    return tuple(_rows(language))


def drawn_passages(*polarities: str) -> list[Mapping[str, Mapping[str, Any]]]:
    """Draw 30 passages to calibrate judges on, each without (`ambig`) and with the fact that settles its question.

    Questions have one of the polarities; `neg` alone if none is named.
    """
    pairs: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for row in builtin_rows():
        if row["question_polarity"] in (polarities or ("neg",)):
            key = (row["category"], row["question_index"], row["question_polarity"])
            pairs.setdefault(key, {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    return random.Random(0).sample(both, min(30, len(both)))


def _rows(language: str) -> Iterator[dict[str, Any]]:
    template_count = 0
    words = WORDS[language]
    for category in words.categories:
        data = read_yaml(resources.files("evenhand.data.bbq").joinpath(words.folder, f"{category}.yaml"))
        example_id = 0
        for index, template in enumerate(data["templates"]):
            for number, fill in enumerate(_fills(words, data["vocabularies"], template, index)):
                for order in (0, 1):
                    for row in _item_rows(fill, template_count, number, order):
                        head = {"example_id": example_id, "question_index": str(index + 1)}
                        yield head | {"category": category} | row
                        example_id += 1
            template_count += 1


def _fills(words: _Words, vocabularies: Mapping[str, Any], template: Mapping[str, Any], index: int) -> Iterator[_Fill]:
    vocabulary = vocabularies[template["vocabulary"]]
    people: Mapping[str, list[str]] = vocabulary["people"]
    pairs: list[tuple[str, str]] = template["pairs"]
    for number in range(FILLS):
        stereotyped, other = pairs[number % len(pairs)]
        phrase = (index + number) % len(people[stereotyped])

        def person(group: str, phrase: int = phrase) -> _Person:
            intro = people[group][phrase]
            return _Person(intro, words.definite(intro), group)

        yield _Fill(template, vocabulary["label_type"], person(stereotyped), person(other), words)


def _item_rows(fill: _Fill, template_count: int, number: int, order: int) -> Iterator[dict[str, Any]]:
    """Yield the four rows that share one ambiguous context and one order of the answers."""
    # Over the four fills and two orders, each combination of mention order, truth and clause order occurs once.
    confirming = (order + number) % 2 == 0
    context = fill.context(stereotyped_first=order == 0)
    fact = fill.fact(confirming=confirming, bad_first=number < FILLS // 2)

    start = _POSITION_STARTS[number][order]
    stereotyped, other, unknown = _POSITIONS[(template_count + start) % len(_POSITIONS)]
    item = template_count * FILLS * 2 + number * 2 + order
    answers = {
        stereotyped: _answer(fill.stereotyped),
        other: _answer(fill.other),
        unknown: (fill.words.unknown[item % len(fill.words.unknown)], "unknown"),
    }
    for polarity in ("neg", "nonneg"):
        target, opposite = (stereotyped, other) if polarity == "neg" else (other, stereotyped)
        for condition in ("ambig", "disambig"):
            ambiguous = condition == "ambig"
            yield {
                "question_polarity": polarity,
                "context_condition": condition,
                "answer_info": {
                    f"ans{i}": [fill.words.bare(text), group] for i, (text, group) in sorted(answers.items())
                },
                "additional_metadata": _metadata(fill),
                "context": context if ambiguous else f"{context} {fact}",
                "question": fill.template[f"{polarity}_question"],
                **{f"ans{i}": text for i, (text, _) in sorted(answers.items())},
                "label": unknown if ambiguous else target if confirming else opposite,
                "target_loc": target,
                "label_type": fill.label_type,
            }


def _metadata(fill: _Fill) -> dict[str, Any]:
    template = fill.template
    return {
        "subcategory": template.get("subcategory", "None"),
        "stereotyped_groups": list(dict.fromkeys(stereotyped for stereotyped, _ in template["pairs"])),
        "version": fill.words.version,
        "source": f"Evenhand built-in set: {template['stereotype']}",
    }


def _answer(person: _Person) -> tuple[str, str]:
    return _sentence(person.definite), person.group


def _sentence(text: str) -> str:
    return _SENTENCE_START.sub(lambda match: match[0].upper(), text)
