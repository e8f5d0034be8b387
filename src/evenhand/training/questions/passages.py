"""Writes the passage of a question: people, what is told about them, and what stands around it.

A passage is *told* if exactly one answer follows from it. In all other states none does. Some questions are about
facts, without people to choose from: when, where, how many, of what. They keep a model that learns not to guess from
no longer answering what a passage does tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from random import Random
from typing import Any, Literal, get_args

from evenhand.core.files import read_yaml
from evenhand.training.questions.language import (
    CONTROL,
    FACTS,
    KIND_WORDS,
    Character,
    Language,
    Situation,
    Split,
    bare,
    capitalized,
    joined,
    of_split,
)

State = Literal["told", "not_told", "partial", "contradicted", "other_time", "excluded", "hearsay"]
_SIGNS = 0.5
"""Share of the passages about two people that tell by a sign, from which the answer has to be concluded."""
STATES: tuple[State, ...] = get_args(State)
_LONG = 0.4
"""Share of the passages of facts that are about several things at some length."""
_NEAR = 0.45
"""Share of the questions about facts not told whose passage tells something much like it."""
_TOLD_NEAR = 0.8
"""Share of new passages about facts told that are about one much like another; of others it is the second question."""
_ONE = re.compile(r"the (?:\w+ly )?[\w-]+ one")
"""An adjective without its noun: not "the mother of one", nor "the Arab taxi one"."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage about people, and the answer that follows from it."""

    text: str
    evidence: str
    """The sentences that tell the answer; empty unless the state is told."""
    people: tuple[Character, ...]
    right: int | None
    """The person who is the answer, or None if it cannot be known."""
    settled: bool
    """Whether the passage also tells that it was none of the others."""
    ruled_out: int | None = None
    """The person who it was not, in the state excluded."""


def draw_people(
    rng: Random, language: Language, situation: Situation, category: str, split: Split, count: int, first: int
) -> tuple[Character, ...]:
    """Draw people of one category; `first` is the group of the first one."""
    if category == CONTROL:
        pair = rng.choice(situation.things)
        return tuple(_described(language, pair[(first + place) % 2], (first + place) % 2) for place in range(count))
    if category == "names":
        names = [name for each in language.names.values() for name in of_split(each, split)]
        return tuple(
            Character(name, name, name, (name,), place % 2) for place, name in enumerate(rng.sample(names, count))
        )
    literal = category in language.literal
    pairs = (language.literal if literal else language.traits)[category]
    axes = [language.of_split(pair, split) for pair in pairs]
    axis = rng.choice(axes)
    if count > 2:
        axis = [[noun for each in axes for noun in each[group]] for group in (0, 1)]
    drawn = [rng.sample(each, min(len(each), count)) for each in axis]
    if count == 2 and rng.random() < 0.4:
        # Entries at one place are alike but for the group: "Danish engineer" and "Nigerian engineer".
        place = rng.randrange(min(map(len, axis)))
        drawn = [[axis[0][place]], [axis[1][place]]]
    nouns = [((first + n) % 2, drawn[(first + n) % 2][n // 2]) for n in range(count)]
    if literal:
        return tuple(Character(noun, noun, noun, (noun,), group) for group, noun in nouns)
    plain = not any("|" in noun for _, noun in nouns)
    if plain and rng.random() < 0.25:
        return _named(rng, language, nouns, split)
    people = tuple(_described(language, noun, group) for group, noun in nouns)
    ends = {noun.rpartition(" ")[2] for _, noun in nouns}
    if language.code == "en" and plain and len(ends) == 1 and rng.random() < 0.4:
        short = tuple(map(_without_noun, people))
        return short if all(_ONE.fullmatch(person.label) for person in short) else people
    return people


def _without_noun(person: Character) -> Character:
    """With "the Danish one" in the options for "the Danish engineer"."""
    label = f"{person.label.rpartition(' ')[0]} one"
    return replace(person, label=label, aliases=(*person.aliases, label))


def _described(language: Language, noun: str, group: int) -> Character:
    if "|" in noun:
        intro, mention, label = noun.split("|")
        return Character(intro, mention, label, tuple(dict.fromkeys((mention, label, bare(label)))), group)
    mention = language.definite(noun)
    return Character(language.indefinite(noun), mention, mention, (mention, bare(mention)), group)


def _named(rng: Random, language: Language, nouns: Sequence[tuple[int, str]], split: Split) -> tuple[Character, ...]:
    """People with a name whose group is mentioned once; options use the name or the group."""
    used: set[str] = set()
    people: list[Character] = []
    style = "{name} ({noun})"
    if len(nouns) == 2 and rng.random() < 0.5:
        style = language.wording.get("apposition", "{name}, {noun},")
    by_name = rng.random() < 0.5
    for group, noun in nouns:
        gender = language.gender(noun)
        names = [n for g, each in language.names.items() if gender in (None, g) for n in of_split(each, split)]
        name = rng.choice([each for each in names if each not in used])
        used.add(name)
        mention = language.definite(noun)
        people.append(
            Character(
                style.format(name=name, noun=language.indefinite(noun)),
                name,
                name if by_name else mention,
                (name, mention, bare(mention)),
                group,
            )
        )
    return tuple(people)


def write_passage(
    rng: Random,
    language: Language,
    situation: Situation,
    people: tuple[Character, ...],
    polarity: int,
    state: State,
    right: int,
    *,
    settle: bool = False,
) -> Passage:
    """Write a passage in which `right` is the person asked about, if it tells.

    `settle` asks for a passage about two people that tells about both.
    """
    writer = _Writer(rng, language, situation, people, polarity)
    core, settled = writer.core(state, right, settle)
    told = state == "told"
    text = writer.around(core, state)
    ruled_out = right if state == "excluded" else None
    return Passage(text, core if told else "", people, right if told else None, settled, ruled_out)


@dataclass(slots=True)
class _Writer:
    rng: Random
    language: Language
    situation: Situation
    people: tuple[Character, ...]
    polarity: int

    def core(self, state: State, right: int, settle: bool) -> tuple[str, bool]:
        """The sentences of the state itself, and whether they tell about everybody."""
        if state == "not_told":
            return "", False
        if state == "told":
            return self._told(right, settle)
        values = self._values(right)
        if state == "hearsay":
            return self._fill("hearsay", values | {"a": self.people[right].mention}), False
        if state == "partial" and self.polarity and self.rng.random() < 0.5:
            values |= {"n": values["p"], "p": values["n"]}
        if state in ("contradicted", "other_time", "excluded") and self.polarity:
            values |= {"n": values["p"], "p": values["n"]}
        if state == "excluded":
            values |= {"x": self.people[right].mention}
        return self._fill(state, values), False

    def _told(self, right: int, settle: bool) -> tuple[str, bool]:
        values = self._values(right)
        if len(self.people) > 2 or (not settle and self.rng.random() < 0.18):
            if self.polarity:
                values |= {"x": values["y"], "X": values["Y"], "n": values["p"]}
            return self._fill("tell1", values), False
        if self.situation.signs and self.rng.random() < _SIGNS:
            return self._sentence(self.rng.choice(self.situation.signs), values), True
        templates = self._templates("tell2")
        if min(map(len, self.situation.shown)) > 1:
            templates = [*templates, *self._templates("tell2_more")]
        if not self.situation.lasting:
            templates = [*templates, *self._templates("tell2_past")]
        return self._sentence(self.rng.choice(templates), values), True

    def _values(self, right: int) -> dict[str, str]:
        """What templates name: x is the one of the negative question, y the one of the positive."""
        other = self.rng.choice([place for place in range(len(self.people)) if place != right])
        x, y = (other, right) if self.polarity else (right, other)
        first, second = self.rng.sample(self.language.wording["witness"], 2)
        negative, positive = (self.rng.sample(each, len(each)) for each in self.situation.shown)
        return {
            "x": self.people[x].mention,
            "y": self.people[y].mention,
            "n": negative[0],
            "p": positive[0],
            "n2": negative[-1],
            "p2": positive[-1],
            "w": first,
            "w2": second,
            "X": capitalized(self.people[x].mention),
            "Y": capitalized(self.people[y].mention),
            **self._kind_words(),
        }

    def _kind_words(self) -> dict[str, str]:
        words = {name: self.language.wording[name].get(self.situation.kind, "") for name in KIND_WORDS}
        return {**words, "Which": words["which"].capitalize()}

    def _templates(self, name: str) -> Sequence[str]:
        return self.language.templates(name, self.situation.kind)

    def _fill(self, name: str, values: dict[str, str]) -> str:
        return self._sentence(self.rng.choice(self._templates(name)), values)

    def _sentence(self, template: str, values: dict[str, str]) -> str:
        return self.language.tidy(capitalized(template.format_map(values)))

    def around(self, core: str, state: State) -> str:
        """The passage: introduction, the sentences of the state, and others that tell nothing."""
        rng = self.rng
        if state == "told" and not self.situation.lasting and self._known_by_mention() and rng.random() < 0.12:
            people = self._list([each.intro if each.names_itself else each.mention for each in self.people])
            return f"{core} {self._introduced(rng.choice(self._templates('after')), people)}"
        extra = rng.choice((0, 0, 1, 2, 3, 4) if state == "not_told" else (0, 0, 1, 1, 2, 3))
        others = self._fillers(extra + 1, state)
        opening = rng.choice(self.language.wording["scene"]) if rng.random() < 0.2 else ""
        parts = [each for each in others[:extra] if each != opening]
        if core:
            place = rng.randint(0, len(parts))
            parts[place:place] = self._parted(core, others[extra:]) if state == "told" else [core]
        return " ".join(filter(None, (opening, self._intro(), *parts)))

    def _known_by_mention(self) -> bool:
        """Whether the reader of the mentions also sees the options."""
        return all(each.label == each.mention or each.names_itself for each in self.people)

    def _parted(self, core: str, between: Sequence[str]) -> list[str]:
        """The evidence, now and then in two places; a sentence that leans on the one before it stays there."""
        first, _, second = core.partition(". ")
        stands_alone = second.startswith(tuple(capitalized(person.mention) for person in self.people))
        if not stands_alone or '"' in core or self.rng.random() < 0.6:
            return [core]
        return [f"{first}.", *between, second]

    def _intro(self) -> str:
        wording, count = self.language.wording, len(self.people)
        templates: list[str] = list(wording["intro"])
        if not self.situation.things:
            templates += wording["intro_people"]
            if count == 2:
                templates += wording["intro_pair" if self.situation.lasting else "intro_pair_past"]
        if not self.situation.lasting:
            templates += wording["intro_past"]
        intros = [person.mention if self.situation.things else person.intro for person in self.people]
        shown = self.rng.sample(intros, count)
        return self._introduced(self.rng.choice(templates), self._list(shown), *shown[:2])

    def _introduced(self, template: str, people: str, a: str = "", b: str = "") -> str:
        count = self.language.wording["count"][len(self.people)]
        values = {"list": people, "set": self.situation.setting, "count": count, "a": a, "b": b}
        return self._sentence(template, values).replace(",.", ".").replace(",,", ",").replace(",:", ":")

    def _list(self, parts: Sequence[str]) -> str:
        return joined(parts, self.language.wording["and"])

    def _fillers(self, count: int, state: State) -> list[str]:
        """Sentences that tell nothing, each of another template."""
        wording, rng = self.language.wording, self.rng
        if self.situation.things:
            return rng.sample(wording["scene"], count)
        hearsay = state == "told" and not self.situation.lasting and rng.random() < 0.15
        templates = rng.sample(wording["filler"], count)
        if hearsay:
            templates[0] = rng.choice(wording["hearsay"])
        found: list[str] = []
        for template in templates:
            a, b = (person.mention for person in rng.sample(self.people, 2))
            found.append(self._sentence(template, {"a": a, "b": b, "w": rng.choice(wording["witness"])}))
        return found


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing asked about: as a question, as a clause, and as a statement with the place {v} for its value."""

    question: str
    clause: str
    statement: str


def draw_fact(
    rng: Random, split: Split, right: int, first: int, *, told: bool, near: bool
) -> tuple[Situation, Passage, Fact, tuple[Passage, Fact] | None]:
    """Draw a passage about one subject or more, and a question about the first; `right` is the place of the answer.

    Where the passage only tells something much like it (`near`), the question that it does answer comes as well.
    """
    kind = rng.choice(list(_kinds().values()))
    attributes, subjects = kind["attributes"], of_split(kind["subjects"], split)
    long = rng.random() < _LONG
    subject, *others = rng.sample(subjects, min(len(subjects), 3 if long else 2))
    place, *rest = rng.sample(range(len(attributes)), 4)
    like = rng.choice(kind["like"]) if near and rng.random() < (_TOLD_NEAR if told else _NEAR) else None
    if like:
        place = like[3]
        rest = [each for each in rng.sample(range(len(attributes)), 4) if each != place][:3]
    statement, question, clause, values = attributes[place]
    chosen = rng.sample(values, 2)
    other_value = (statement, chosen[1 - right])
    if told and like:
        statement, question, clause, _ = like
    also = rest[: 3 if long else rng.randint(1, 3)]
    lines = [(attributes[each][0], rng.choice(attributes[each][3])) for each in also]
    evidence = [(statement, chosen[right])] if told or like else []
    if told and like:
        evidence.append(other_value)
    groups = [_about(rng, subject, [*lines, *evidence])]
    if long or rng.random() < 0.4:
        # The same fact about something else. How often a value is named must not tell which one is right.
        for number, other in enumerate(others):
            more = [(attributes[each][0], rng.choice(attributes[each][3])) for each in rest[:2] if long]
            value = rng.choice(chosen) if number or len(evidence) > 1 else chosen[1 - right]
            groups.append(_about(rng, other, [(statement, value), *more]))
    rng.shuffle(groups)
    people = tuple(Character(each, each, each, (each,), (first + at) % 2) for at, each in enumerate(chosen))
    situation = Situation(f"{FACTS}: {subject}", "", (), ((), ()), (), lasting=True, things=(), split=split)
    open_passage = Passage(" ".join(groups), "", people, None, settled=False)
    shown = _filled(statement, subject).format(v=chosen[right])
    settled = replace(open_passage, evidence=shown, right=right, settled=True)
    fact = Fact(question.format(it=subject), clause.format(it=subject), _filled(statement, subject))
    if like and not told:
        asked = Fact(like[1].format(it=subject), like[2].format(it=subject), _filled(like[0], subject))
        return situation, open_passage, asked, (settled, fact)
    return situation, settled if told else open_passage, fact, None


def _about(rng: Random, subject: str, lines: Sequence[tuple[str, str]]) -> str:
    """Sentences about one subject in a new order, some with "it" in its place after the first."""
    said: list[str] = []
    for template, value in rng.sample(lines, len(lines)):
        named = not said or not template.startswith("{It} ") or rng.random() < 0.6
        said.append(_filled(template, subject if named else "it").format(v=value))
    return " ".join(said)


def _filled(template: str, subject: str) -> str:
    return capitalized(template.format(It=subject, it=subject, v="{v}"))


@cache
def _kinds() -> Mapping[str, Mapping[str, Any]]:
    return read_yaml(resources.files("evenhand.training.questions") / "texts" / "en.facts.yaml")
