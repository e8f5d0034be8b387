"""The English grammar that a substitution needs: articles, cases of pronouns, agreement of verbs. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from evenhand.core.files import read_yaml
from evenhand.data.identities import FOLDER, Group, Name, Pronouns

# --- writes a group into a prompt in a language whose words agree ---
# Slots are `{person}` with an indefinite article, `{person.the}` with a definite one, either in a case
# (`{person.dat}`, `{person.the.dat}`), the pronouns of the language's file, `{name}`, and `{masculine|feminine}` for
# a word that agrees. Groups, articles and pronouns are in one YAML file for each language; no native speaker has
# checked them.

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


_WORDS: Mapping[str, frozenset[str]] = {
    name: frozenset(listed.split()) for name, listed in read_yaml(FOLDER / "words.yaml").items()
}
_IRREGULAR = {"person": "people", "child": "children", "woman": "women", "man": "men", "wife": "wives"}


def _nouns(noun: str) -> tuple[str, str]:
    """The singular and the plural."""
    if noun in _IRREGULAR:
        return noun, _IRREGULAR[noun]
    if noun.endswith("man"):
        return noun, f"{noun[:-3]}men"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun, f"{noun[:-1]}ies"
    return noun, f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


PERSONS = frozenset(each for noun in _WORDS["persons"] for each in _nouns(noun))
"""Nouns that name a person, in singular and plural."""
NOT_PERSONS_BEFORE, COMPOUNDS, ADJECTIVES = (_WORDS[each] for each in ("not_persons_before", "compounds", "adjectives"))
CASES = ("subject", "object", "possessive", "possessive_noun", "reflexive")
FORMS: Mapping[Pronouns, tuple[str, str, str, str, str]] = {
    "she": ("she", "her", "her", "hers", "herself"),
    "he": ("he", "him", "his", "his", "himself"),
    "they": ("they", "them", "their", "theirs", "themself"),
}
DETERMINERS = _WORDS["determiners"]
FUNCTION_WORDS = DETERMINERS | _WORDS["function_words"]
GENDERED = (
    ("person", "woman", "man"),
    ("people", "women", "men"),
    ("person", "lady", "gentleman"),
    ("child", "girl", "boy"),
    ("children", "girls", "boys"),
    ("parent", "mother", "father"),
    ("parent", "mom", "dad"),
    ("parents", "mothers", "fathers"),
    ("spouse", "wife", "husband"),
    ("partner", "girlfriend", "boyfriend"),
    ("child", "daughter", "son"),
    ("sibling", "sister", "brother"),
    ("grandparent", "grandmother", "grandfather"),
    ("relative", "aunt", "uncle"),
    ("relative", "niece", "nephew"),
    ("server", "waitress", "waiter"),
    ("actor", "actress", "actor"),
    ("businessperson", "businesswoman", "businessman"),
    ("salesperson", "saleswoman", "salesman"),
)
"""(neutral, of a woman, of a man)."""
_COLUMN: Mapping[Pronouns, int] = {"they": 0, "she": 1, "he": 2}

_AN_BEFORE_CONSONANT = re.compile(r"(?:hour|honest|honou?r|heir)", re.IGNORECASE)
_A_BEFORE_VOWEL = re.compile(r"(?:uni(?!n|m)|us[aeiou]|eu|one|once|ut[ei])", re.IGNORECASE)
_AN_NUMBER = re.compile(r"(?:8|11(?!\d)|18(?!\d))")
_LETTERS_WITH_AN = "AEFHILMNORSX"
_PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do", "goes": "go"}
_SINGULAR = {"are": "is", "were": "was", "have": "has", "do": "does"}
_ADVERBS = _WORDS["adverbs"]
_NOT_VERBS = frozenset(("us", "as", "his", "this", "its", "plus", "versus", "perhaps", "towards", "besides", "thus"))
_PRONOUN = re.compile(r"\b(she|he|her|him|hers|his|herself|himself)\b(?!['’-]?\w*-)", re.IGNORECASE)
_NEXT = re.compile(r"\s+([A-Za-z'’-]+)")


def article(following: str) -> str:
    """Return "a" or "an", by the sound of the word that follows."""
    word = following.lstrip("\"'“‘(*_")
    if not word:
        return "a"
    if word[0].isdigit():
        return "an" if _AN_NUMBER.match(word) else "a"
    first = re.split(r"[^A-Za-z]", word, maxsplit=1)[0]
    if 1 < len(first) <= 4 and first.isupper():  # spelled out: an HR manager, a UN employee
        return "an" if first[0] in _LETTERS_WITH_AN else "a"
    if _AN_BEFORE_CONSONANT.match(word):
        return "an"
    return "an" if word[0].lower() in "aeiou" and not _A_BEFORE_VOWEL.match(word) else "a"


def with_article(before: str, following: str) -> str:
    """Return `before` with the right article at its end, if it ends in one."""
    match = re.search(r"\b([Aa])n?(\s+)$", before)
    if match is None:
        return before
    right = article(following)
    return before[: match.start()] + (right.capitalize() if match[1] == "A" else right) + match[2]


def begins_sentence(before: str) -> bool:
    return re.search(r"(?:^|[.!?:]['\"”’)]*\s+|\n\s*)[\"'“‘(*_]*$", before) is not None


def capitalised(text: str, before: str) -> str:
    """Return the text with a capital if it begins a sentence after `before`."""
    return text[:1].upper() + text[1:] if begins_sentence(before) else text


def agreeing(rest: str, pronouns: Pronouns) -> str:
    """Return what follows a subject pronoun, with its first verb in the right form.

    Verbs are expected in the third person ("she wants"); they lose their ending after "they".
    """
    contracted = re.match(r"(['’])s\b", rest) if pronouns == "they" else re.match(r"(['’])re\b", rest)
    if contracted:
        return contracted[1] + ("re" if pronouns == "they" else "s") + rest[contracted.end() :]
    place = 0
    while match := _NEXT.match(rest, place):
        word = match[1].lower()
        if word in _ADVERBS or word.endswith("ly"):
            place = match.end()
            continue
        verb = _plural(word) if pronouns == "they" else _singular(word)
        return rest[: match.start(1)] + verb + rest[match.end(1) :] if verb != word else rest
    return rest


def _plural(verb: str) -> str:
    stem, mark, ending = verb.replace("’", "'").partition("n't")
    if mark:
        return _PLURAL.get(stem, stem) + mark + ending
    if verb in _PLURAL:
        return _PLURAL[verb]
    if not verb.endswith("s") or verb.endswith("ss") or verb in _NOT_VERBS or len(verb) < 4:
        return verb
    if verb.endswith("ies") and len(verb) > 4:
        return f"{verb[:-3]}y"
    return verb[:-2] if verb.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")) else verb[:-1]


def _singular(verb: str) -> str:
    stem, mark, ending = verb.replace("’", "'").partition("n't")
    return _SINGULAR.get(stem, stem) + mark + ending


def genders_of_pronouns(text: str) -> set[Pronouns]:
    """Return which of she and he the text uses."""
    used = {word.lower() for word in _PRONOUN.findall(text)}
    return {name for name in ("she", "he") if used & set(FORMS[name])}


def with_pronouns(text: str, pronouns: Pronouns) -> str:
    """Return the text with all its pronouns she and he replaced, in their cases, with verbs that agree."""
    done, place = "", 0
    while match := _PRONOUN.search(text, place):
        word, rest = match[1], text[match.end() :]
        case = _case(word.lower(), rest)
        form = FORMS[pronouns][CASES.index(case)]
        done += text[place : match.start()] + (form.capitalize() if word[0].isupper() else form)
        if case == "subject":
            text = text[: match.end()] + agreeing(rest, pronouns)
        place = match.end()
    return done + text[place:]


def _case(word: str, rest: str) -> str:
    following = _NEXT.match(rest)
    has_noun = following is not None and following[1].lower() not in FUNCTION_WORDS
    if word in ("she", "he"):
        return "subject"
    if word in ("herself", "himself"):
        return "reflexive"
    if word == "him":
        return "object"
    if word == "hers":
        return "possessive_noun"
    if word == "his":
        return "possessive" if has_noun else "possessive_noun"
    return "possessive" if has_noun else "object"


_GENDERED = {word: row for row in reversed(GENDERED) for word in row[1:]}


def gendered_noun(word: str, pronouns: Pronouns) -> str | None:
    """Return the noun of this gender for a gendered noun; None if the noun is not gendered."""
    if (row := _GENDERED.get(word.lower())) is None:
        return None
    found = row[_COLUMN[pronouns]]
    return found.capitalize() if word[0].isupper() else found
