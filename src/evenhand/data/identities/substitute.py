"""Writes a group into a prompt: into its slots, or into a plain prompt that names a person or says "I".

Slots are `{person}`, `{name}`, `{pronoun}`, `{pronoun.object}`, `{pronoun.possessive}`, `{pronoun.possessive_noun}` and
`{pronoun.reflexive}`; `inflect` has those of other languages, where a prompt needs them. A prompt that cannot be
written for a group without a doubtful sentence is left out, with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenhand.core.errors import DataError
from evenhand.data.identities import Group, Name
from evenhand.data.identities.grammar import (
    ADJECTIVES,
    CASES,
    COMPOUNDS,
    DETERMINERS,
    FORMS,
    FUNCTION_WORDS,
    GENDERED,
    GENDERS,
    NOT_PERSONS_BEFORE,
    PERSONS,
    SLOT,
    agreeing,
    article,
    capitalised,
    filled,
    gendered_noun,
    genders_of_pronouns,
    grammar_of,
    needs_gender,
    with_article,
    with_pronouns,
)
from evenhand.data.identities.grammar import LANGUAGES as INFLECTED

SLOTS = ("person", "name", "pronoun", *(f"pronoun.{case}" for case in CASES[1:]))
GENDER = "gender"
_SLOT = re.compile(r"(?<!\{)\{([A-Za-z][A-Za-z_.]*)\}(?!\})")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_SOMEONE = re.compile(r"\b(someone|somebody|anyone|anybody)\b(?!['’]s)", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:I|my|me|mine|myself)\b")
_AGE = re.compile(r"\b\d+[- ]years?[- ]old\b|\baged? \d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Variant:
    """A prompt written for one group."""

    group: Group
    text: str
    name: Name | None
    inserted: tuple[str, ...]
    """The words that were put in, in lower case; an answer that repeats them is not different for it."""


@dataclass(frozen=True, slots=True)
class Variants:
    """A prompt written for the groups of one attribute; none, with the reason, if it does not suit them."""

    found: tuple[Variant, ...]
    reason: str = ""


def check_slots(text: str, where: str, language: str = "en") -> None:
    """Raise DataError for a slot that does not exist in the language."""
    slots = SLOTS if language == "en" else grammar_of(language).slots
    for slot in (_SLOT if language == "en" else SLOT).findall(text):
        if slot not in slots and "|" not in slot:
            known = ", ".join(f"{{{each}}}" for each in slots)
            others = [each for each in INFLECTED if slot in grammar_of(each).slots]
            hint = f" (it is one of {', '.join(others)}: --set language={others[0]})" if others else ""
            raise DataError(
                f"{where}: there is no slot {{{slot}}} in the language {language}{hint}; use {known}, or double the "
                "braces to keep them."
            )


def without_slots(text: str) -> str:
    """Return the prompt's own words, from which its language is detected."""
    return SLOT.sub("", text)


def variants(text: str, groups: Sequence[Group], names: Sequence[Name], turn: int, language: str = "en") -> Variants:
    """Write the prompt for every group; `turn` rotates the names and what they have in common."""
    slots = set((_SLOT if language == "en" else SLOT).findall(text))
    attribute = groups[0].attribute
    chosen: Mapping[str, Name] = _names(groups, names, turn) if "name" in slots else {}
    if slots or language != "en":
        if reason := _unfit(slots, attribute, chosen, language):
            return Variants((), reason)
        if "name" in slots and len(chosen) < 2:
            chosen = {group.name: names[turn % len(names)] for group in groups}
        found = [
            _variant(group, _filled(text, group, chosen.get(group.name), language), chosen.get(group.name))
            for group in groups
            if "name" not in slots or group.name in chosen
        ]
    else:
        if said := _says_already(text, groups):
            return Variants((), f"it already says {said}; put {{person}} there")
        written = [(group, _written(text, group)) for group in groups]
        if any(each is None for _, each in written):
            return Variants((), _why_not(text))
        found = [_variant(group, each, None) for group, each in written if each is not None]
    if len({each.text for each in found}) < len(found) or len(found) < 2:
        return Variants((), f"it would read the same for all groups of {attribute}")
    return Variants(tuple(found))


def _unfit(slots: set[str], attribute: str, chosen: Mapping[str, Name], language: str) -> str:
    """Return why the slots do not suit the attribute; "" if they do."""
    shows_person = any(slot.startswith("person") for slot in slots)
    if not slots:
        return f"it has no slot, which a prompt in the language {language} needs; put {{person}} there"
    if "name" in slots and len(chosen) < 2 and not shows_person:
        return f"names do not show {attribute}, and it has no {{person}}"
    if "name" not in slots and not shows_person and attribute != GENDER:
        return f"its slots do not show {attribute}"
    agrees = language != "en" and attribute != GENDER and needs_gender(slots)
    if agrees and any(name.pronouns not in GENDERS for name in chosen.values()):
        return "the names show no gender, by which its slots could agree"
    return ""


def _names(groups: Sequence[Group], names: Sequence[Name], turn: int) -> Mapping[str, Name]:
    """Choose a name for each group; all else that names show is the same for all groups."""
    attribute = groups[0].attribute
    showing = [each for each in names if attribute in each.groups]
    others = sorted({key for each in showing for key in each.groups} & {"gender", "race"} - {attribute})

    def setting(name: Name) -> tuple[str, ...]:
        return tuple(name.groups.get(key, "") for key in others)

    by_setting: dict[tuple[str, ...], dict[str, list[Name]]] = {}
    for each in showing:
        by_setting.setdefault(setting(each), {}).setdefault(each.groups[attribute], []).append(each)
    wanted = [group.name for group in groups]
    most = max((len(set(wanted) & set(found)) for found in by_setting.values()), default=0)
    settings = [found for found in by_setting.values() if len(set(wanted) & set(found)) == most]
    if most < 2:
        return {}
    found = settings[turn % len(settings)]
    place = turn // len(settings)
    return {name: found[name][place % len(found[name])] for name in wanted if name in found}


def _variant(group: Group, text: str, name: Name | None) -> Variant:
    text = text.replace("{{", "{").replace("}}", "}")
    parts = [group.phrase, group.adjective, *(form for _, form in group.forms), name.text if name else ""]
    words = dict.fromkeys(word.lower() for part in parts for word in re.findall(r"\w+", part))
    return Variant(group, text, name, tuple(words))


def _filled(text: str, group: Group, name: Name | None, language: str = "en") -> str:
    """Fill the slots; each changes the article before it, or the verb after it."""
    if language != "en":
        return filled(text, group, name, grammar_of(language), by_name=group.attribute != GENDER)
    pronouns = name.pronouns if name is not None and group.attribute != GENDER else group.pronouns
    done, rest = "", text
    while match := _SLOT.search(rest):
        before, after = done + rest[: match.start()], rest[match.end() :]
        slot = match[1]
        if slot == "person":
            if _has_determiner(before):
                before, word = with_article(before, group.phrase), group.phrase
            else:
                word = f"{article(group.phrase)} {group.phrase}"
        elif slot == "name":
            word = name.text if name is not None else ""
        else:
            case = slot.partition(".")[2] or "subject"
            word = FORMS[pronouns][CASES.index(case)]
            if case == "subject":
                after = agreeing(after, pronouns)
        done, rest = before + capitalised(word, before), after
    return done + rest


def _has_determiner(before: str) -> bool:
    """Whether the noun phrase that ends `before` has begun: "a ", "my new "."""
    for word in reversed(re.split(r"[.,;:!?\n]", before)[-1].split()):
        if word.lower() in DETERMINERS:
            return True
        if word.lower() in FUNCTION_WORDS:
            return False
    return False


def _written(text: str, group: Group) -> str | None:
    """Write the group into a plain prompt; None if there is no place for it, or if the pronouns are of two people."""
    if group.attribute == GENDER and len(genders_of_pronouns(text)) > 1:
        return None
    someone, noun = _SOMEONE.search(text), _person(text)
    if noun is not None and (someone is None or noun.start() < someone.start()):
        changed = _at_noun(text, noun, group)
    elif someone is not None:
        before, after = text[: someone.start()], text[someone.end() :]
        changed = before + capitalised(f"{article(group.phrase)} {group.phrase}", before) + after
    elif _FIRST_PERSON.search(text):
        return f"I am {article(group.phrase)} {group.phrase}. {text}"
    else:
        return None
    return with_pronouns(changed, group.pronouns) if group.attribute == GENDER else changed


def _says_already(text: str, groups: Sequence[Group]) -> str:
    """Return what a plain prompt says of the attribute, e.g. "Asian" or "30-year-old"; gender is replaced instead."""
    if groups[0].attribute == "age" and (age := _AGE.search(text)):
        return age[0]
    noun = _person(text)
    if noun is None or groups[0].attribute == GENDER:
        return ""
    before = text[: noun.start()].lower().split()[-4:]
    return next((group.adjective for group in groups if group.adjective.lower() in before), "")


def _person(text: str) -> re.Match[str] | None:
    """Return the first noun that names a person."""
    for match in _WORD.finditer(text):
        word = match[0].lower().removesuffix("'s").removesuffix("’s")
        following = _WORD.match(text, match.end() + 1)
        if word in PERSONS and not (following and following[0].lower() in NOT_PERSONS_BEFORE):
            return match
    return None


def _at_noun(text: str, noun: re.Match[str], group: Group) -> str:
    word = noun[0]
    bare, mark = (word[:-2], word[-2:]) if word.endswith(("'s", "’s")) else (word, "")
    if group.attribute == GENDER and (swapped := gendered_noun(bare, group.pronouns)) is not None:
        if group.pronouns == "they" and swapped.lower() in ("person", "people", "child", "children"):
            swapped = f"{group.adjective} {swapped.lower()}"
        return with_article(text[: noun.start()], swapped) + swapped + mark + text[noun.end() :]
    place = _before_modifiers(text, noun.start())
    before = text[:place]
    adjective, rest = group.adjective, text[place:]
    if not before.strip():
        adjective, rest = adjective[:1].upper() + adjective[1:], rest[:1].lower() + rest[1:]
    return f"{with_article(before, adjective)}{adjective} {rest}"


def _before_modifiers(text: str, start: int) -> int:
    """Return where an adjective goes: after determiner and known adjectives, before the "bus" of "bus driver"."""
    phrase: list[re.Match[str]] = []
    for match in reversed(list(_WORD.finditer(text, 0, start))):
        end = phrase[-1].start() if phrase else start
        if text[match.end() : end].strip() or "\n" in text[match.end() : end]:
            break
        if match[0].lower() in DETERMINERS:
            after = phrase[::-1]
            while after and after[0][0].lower() in ADJECTIVES:
                after.pop(0)
            return after[0].start() if after else start
        if match[0].lower() in FUNCTION_WORDS:
            break
        phrase.append(match)
    place = start
    for match in phrase:  # no determiner: only what surely belongs to the noun
        if match[0].lower() not in COMPOUNDS:
            break
        place = match.start()
    return place


def _why_not(text: str) -> str:
    if len(genders_of_pronouns(text)) > 1:
        return "its pronouns are of two people; mark one with {pronoun}"
    return "it names no person that we know; add {person} or {name}"


MASKED = frozenset(
    [word for forms in FORMS.values() for word in forms] + [word for row in GENDERED for word in row] + ["themselves"]
)
"""Words that differ between groups for reasons of grammar; they do not count in comparisons of answers."""


_PART = re.compile(r"(?s).{1,1500}(?:(?<=[.!?])\s|\Z)|.{1,1500}(?:\s|\Z)|.{1,1500}")
"""Up to 1,500 characters, to the end of a sentence or at least of a word."""


def neutral(text: str, groups: Sequence[Group], names: Sequence[str], language: str = "en") -> str:
    """Return the text without what shows a group: names become Alex, she and he they, "a Black nurse" a nurse.

    In other languages than English names alone are replaced. It is done part by part, since what changes a word copies
    the rest of the text.
    """
    return "".join(_neutral(part, groups, names, language) for part in _PART.findall(text))


def _neutral(text: str, groups: Sequence[Group], names: Sequence[str], language: str) -> str:
    if words := [re.escape(word) for name in names for word in name.split()]:
        text = re.sub(rf"\b(?:{'|'.join(words)})\b", "Alex", text)
        text = re.sub(r"\bAlex(?:\s+Alex)+\b", "Alex", text)
    if language != "en":
        return text
    text = re.sub(r"[A-Za-z]+", lambda match: gendered_noun(match[0], "they") or match[0], with_pronouns(text, "they"))
    adjectives = "|".join(re.escape(group.adjective) for group in groups)
    pattern = re.compile(rf"\b(?:{adjectives})\s+(?=([A-Za-z-]+))", re.IGNORECASE)
    place = 0
    while match := pattern.search(text, place):
        if match[1].lower() in PERSONS | COMPOUNDS:
            rest = text[match.end() :]
            before = with_article(text[: match.start()], rest)
            text = before + capitalised(rest, before)
            place = len(before)
        else:
            place = match.end()
    return text
