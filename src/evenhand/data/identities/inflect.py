"""Writes a group into a prompt in a language whose words agree: German, Spanish, French, Italian, Portuguese, Dutch.

Slots are `{person}` with an indefinite article, `{person.the}` with a definite one, either in a case (`{person.dat}`,
`{person.the.dat}`), the pronouns of the language's file, `{name}`, and `{masculine|feminine}` for a word that agrees.
Groups, articles and pronouns are in one YAML file for each language; no native speaker has checked them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from evenhand.data.identities import FOLDER, Group, Name
from evenhand.data.identities.grammar import capitalised
from evenhand.data.yaml_file import read_yaml

LANGUAGES = ("de", "es", "fr", "it", "pt", "nl")
SLOT = re.compile(r"(?<!\{)\{([A-Za-z][A-Za-z_.]*|[^{}|\n]*\|[^{}|\n]*)\}(?!\})")
GENDERS = {"she": "f", "he": "m"}
_WORD = re.compile(r"[^\W\d_]+")
_LAST = re.compile(r"([^\W\d_]+)\s+$")
_VOWEL = re.compile(r"\s*[aeiouhàâéèêëîïôûœy]", re.IGNORECASE)
_THE = "the"


@dataclass(frozen=True)
class Grammar:
    """The articles, pronouns and contractions of one language."""

    cases: tuple[str, ...]
    articles: Mapping[str, Mapping[str, str]]
    """`a` and `the` → gender → the article in each case."""
    pronouns: Mapping[str, Mapping[str, str]]
    """Slot → gender → pronoun."""
    joined: Mapping[str, str]
    """A word and the article or pronoun after it → what they become."""
    elided: Mapping[str, str]
    """Pronoun → its form before a vowel."""
    endings: re.Pattern[str]
    """The endings by which words agree."""

    @cached_property
    def slots(self) -> tuple[str, ...]:
        cases = ("", *(f".{case}" for case in self.cases[1:]))
        return (*(f"person{the}{case}" for the in ("", f".{_THE}") for case in cases), "name", *self.pronouns)

    @cached_property
    def masked(self) -> frozenset[str]:
        """Words that differ between groups for reasons of grammar."""
        forms = [*self.articles.values(), *self.pronouns.values()]
        return frozenset(word for each in forms for listed in each.values() for word in listed.split())

    def stem(self, word: str) -> str:
        """The word without the ending by which it agrees, so that grammar alone makes no difference."""
        return self.endings.sub("", word) if len(word) > 3 else word


@cache
def grammar_of(language: str) -> Grammar:
    """Return the grammar of one of `LANGUAGES`."""
    content: Mapping[str, Any] = read_yaml(FOLDER / f"{language}.yaml")
    return Grammar(
        tuple(content.get("cases", "nom").split()),
        content["articles"],
        content["pronouns"],
        content.get("joined", {}),
        content.get("elided", {}),
        re.compile(f"(?:{content['endings']})$"),
    )


def needs_gender(slots: set[str]) -> bool:
    """Whether one of the slots follows the gender of a name."""
    return any("|" in slot or slot.startswith("pronoun") for slot in slots)


def filled(text: str, group: Group, name: Name | None, grammar: Grammar, *, by_name: bool) -> str:
    """Fill the slots; `by_name`: pronouns and words that agree follow the name and not the group."""
    gender = GENDERS[name.pronouns] if by_name and name is not None and name.pronouns in GENDERS else group.gender
    done, rest = "", text
    while match := SLOT.search(rest):
        before, after = done + rest[: match.start()], rest[match.end() :]
        slot = match[1]
        if slot == "name":
            done, rest = before + (name.text if name is not None else ""), after
            continue
        if "|" in slot:
            masculine, _, feminine = slot.partition("|")
            first, more = feminine if gender == "f" else masculine, ""
        elif slot.startswith("person"):
            first, more = _phrase(slot, group, grammar)
        else:
            first, more = grammar.pronouns[slot][gender], ""
            if first in grammar.elided and _VOWEL.match(after):
                first, after = grammar.elided[first], after.lstrip()
        before, first = _after(before, first, grammar)
        done, rest = before + capitalised(first + more, before.rstrip("¿¡")), after
    return done + rest


def _phrase(slot: str, group: Group, grammar: Grammar) -> tuple[str, str]:
    """The article, and the rest of the noun phrase."""
    parts = slot.split(".")[1:]
    kind = _THE if _THE in parts else "a"
    case = next((each for each in grammar.cases if each in parts), grammar.cases[0])
    forms = dict(group.forms)
    noun = forms.get(case) or (forms.get("dat") if case == "gen" else None) or group.noun
    listed = forms.get(kind) or grammar.articles[kind][group.gender]
    article = listed.split()[grammar.cases.index(case)] if " " in listed else listed
    return article, noun if article.endswith("'") else f" {noun}"


def _after(before: str, first: str, grammar: Grammar) -> tuple[str, str]:
    """The text before a word, and the word, which may become one: "de el" is "del"."""
    last = _LAST.search(before)
    one = grammar.joined.get(f"{last[1].lower()} {first}") if last else None
    if last is None or one is None:
        return before, first
    return before[: last.start()], one[:1].upper() + one[1:] if last[1][0].isupper() else one
