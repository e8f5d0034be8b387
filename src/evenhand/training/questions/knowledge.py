"""Questions without a passage whose answer is common knowledge, in English.

They keep a model that learns not to guess from abstaining, or from answering "both alike", where it knows better.
A comparison has a third option, such as "Both are the same", which is right for about two of five. The other
questions have three or four options; some have one that says that it is not known, and it is never right.
Figures of countries and of groups give pairs that clearly differ and pairs that are about equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import combinations
from random import Random
from typing import Any, Literal

from evenhand.core.errors import DataError
from evenhand.training.questions.language import KNOWLEDGE, Split, capitalized, load
from evenhand.training.questions.row import KNOWN, Form, QuestionRow

KNOWLEDGE_FORMS: tuple[Form, ...] = ("letter", "number", "option", "sentence", "short", "json")
Kind = Literal["things", "people", "alike", "choices", "apart", "level"]
KIND_SHARES: Mapping[Kind, int] = {"things": 6, "people": 6, "alike": 6, "choices": 10, "apart": 12, "level": 10}
Third = Literal["equal", "both", "neither"]
"""What the third option of a comparison says."""
_THIRDS: Mapping[str, Third] = {"~": "equal", "~both": "both", "~neither": "neither"}
_THIRD_ALIASES: Mapping[Third, tuple[str, ...]] = {
    "equal": ("the same", "equal", "equally", "alike", "no difference", "do not differ", "tie", "both", "neither"),
    "both": ("both", "alike", "each of the two"),
    "neither": ("neither", "none", "not one"),
}
_LETTER_STYLES = ("({}) ", "({}) ", "{}) ", "{}. ", "{}: ")
_TRAILING = re.compile(r"(?m) +$")
_GAPS = re.compile(r"\n{3,}")
PLACES = range(20)
_HELD_OUT = 4
"""One fact of this many is kept for the dev split."""
_PAIRS = 30
"""About as many pairs of a table are asked about, so that no table outweighs the others."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """One fact and how to ask for it."""

    kind: Kind
    people: bool
    """Whether it is about groups of people."""
    questions: tuple[str, ...]
    """A second question asks the opposite, so that the other option is right."""
    options: tuple[str, ...]
    """The first one is right, unless both are alike; a comparison has two."""
    thirds: tuple[Third, ...] = ()
    """What the third option of a comparison may say; if both are alike, that is the answer."""
    own_third: str = ""
    """A wording of the third option that only this question has."""

    @property
    def alike(self) -> bool:
        return self.kind in ("alike", "level")

    @property
    def id(self) -> str:
        return f"{KNOWLEDGE}: {self.questions[0]} {' / '.join(self.options)}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with its options in order."""

    question: str
    options: tuple[str, ...]
    right: int
    aliases: tuple[tuple[str, ...], ...]
    third: int | None = None
    """Index of the third option of a comparison."""
    third_kind: Third | None = None
    unknown: int | None = None

    def named(self) -> str:
        """The question with the two that are compared in it."""
        pair = [option for place, option in enumerate(self.options) if place != self.third]
        return f"{self.question.removesuffix('?')}: {pair[0]} or {pair[1]}?"


@cache
def knowledge(split: Split) -> Mapping[Kind, Sequence[Knowledge]]:
    """Return the facts of a split by kind."""
    text = (resources.files("evenhand.training.questions") / "texts" / "en.knowledge.txt").read_text("utf-8")
    found: dict[Kind, list[Knowledge]] = {kind: [] for kind in KIND_SHARES}
    for fact in parse_knowledge(text):
        found[fact.kind].append(fact)
    return {
        kind: [fact for place, fact in enumerate(facts) if (place % _HELD_OUT == _HELD_OUT - 1) == (split == "dev")]
        for kind, facts in found.items()
    }


def parse_knowledge(text: str) -> Iterator[Knowledge]:
    """Parse sections of facts.

    Under `# things` and `# people` a question begins with ?, if a third option would say that both are equal, or with
    !, if it would say both or neither. Pairs follow: after > the first of each is right, after ~, ~both or ~neither
    the third option. Under `# figures` a question may end with a third option of its own. There, a pair is followed by
    what to put into the question, and = by the largest gap of two that are equal, the smallest of two that differ, and
    names with their figures. Under `# choices` each line is a question and its options, the right one first.
    """
    section, mark, questions, own = "", "", ("",), ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        head, _, rest = line.partition(" ")
        if head == "#":
            section = rest
        elif section == "choices":
            question, *options = line.split(" | ")
            yield Knowledge("choices", people=False, questions=(question,), options=tuple(options))
        elif head in ("?", "!"):
            mark, (asked, _, own) = head, rest.partition(" | ")
            questions = tuple(asked.split(" <> "))
        elif head == "=":
            yield from _measured(rest, mark, questions, own)
        elif head == ">" or (head in _THIRDS and (_THIRDS[head] == "equal") == (mark == "?")):
            differ: Kind = "apart" if section == "figures" else "people" if section == "people" else "things"
            kind: Kind = differ if head == ">" else "level" if section == "figures" else "alike"
            thirds: tuple[Third, ...] = ("equal",) if mark == "?" else ("both", "neither")
            if head != ">":
                thirds = (_THIRDS[head],)
            pairs, _, items = rest.partition(": ")
            for pair in pairs.split("; "):
                first, second = pair.split(" / ")
                for item in items.split("; "):
                    filled = tuple(question.format(item) for question in questions)
                    yield Knowledge(kind, section != "things", filled, (first, second), thirds, own)
        else:
            raise DataError(f"{head!r} does not fit here.", file="en.knowledge.txt", line=number)


def _measured(line: str, mark: str, questions: tuple[str, ...], own: str) -> Iterator[Knowledge]:
    """Pairs of a table whose figures clearly differ or are about equal; after ! figures are 1 for yes, 0 for no."""
    most, least, table = line.split(" ", 2)
    figures = [(name, float(figure)) for name, _, figure in (each.rpartition(" ") for each in table.split("; "))]
    apart: list[Knowledge] = []
    level: list[Knowledge] = []
    for (high, more), (low, less) in combinations(sorted(figures, key=lambda each: -each[1]), 2):
        if more - less >= float(least):
            thirds: tuple[Third, ...] = ("equal",) if mark == "?" else ("both", "neither")
            apart.append(Knowledge("apart", True, questions, (high, low), thirds, own))
        elif more - less <= float(most):
            same: Third = "equal" if mark == "?" else "both" if more else "neither"
            level.append(Knowledge("level", True, questions, (high, low), (same,), own))
    for pairs in (apart, level):
        yield from pairs[:: max(1, len(pairs) // _PAIRS)]


def ask(rng: Random, fact: Knowledge, form: Form, split: Split, place: int) -> QuestionRow:
    """Ask for a fact in one form; `place` is one of PLACES, for the order of the options."""
    held_out = split == "dev" and rng.random() < 0.5
    asker = _Asker(rng, load("en").wording, "dev" if held_out else "train")
    asked = asker.comparison(fact, place) if fact.thirds else asker.choice(fact)
    content, answer, marks = asker.shown(asked, form)
    return QuestionRow(
        messages=(*asker.system(), {"role": "user", "content": content}),
        answer=answer,
        form=form,
        state=KNOWN,
        language="en",
        category=KNOWLEDGE,
        options=tuple(map(capitalized, asked.options)),
        right=asked.right,
        people=asked.aliases,
        situation=fact.id,
        unknown=asked.unknown,
        marks=marks,
        split=split,
        question=asked.question,
        held_out_wording=held_out,
    )


@dataclass(slots=True)
class _Asker:
    rng: Random
    wording: Mapping[str, Any]
    part: Split
    """Which part of the wording to use."""

    def _one(self, parts: Mapping[str, Sequence[str]]) -> str:
        return self.rng.choice(parts[self.part])

    def comparison(self, fact: Knowledge, place: int) -> _Asked:
        """Put the third option last in 16 of the 20 places."""
        turn = self.rng.randrange(len(fact.questions))
        right, other = (fact.options[turn], fact.options[1 - turn])
        pair = [right, other] if place % 2 else [other, right]
        kind = self.rng.choice(fact.thirds)
        third = self._one(self.wording["knowledge"]["third"][kind])
        if fact.own_third and self.rng.random() < 0.5:
            third = fact.own_third
        third = third.format(a=pair[0], b=pair[1])
        at = {0: 0, 1: 0, 2: 1, 3: 1}.get(place, 2)
        options = [*pair[:at], third, *pair[at:]]
        aliases = [_aliases(each) for each in options]
        aliases[at] = _THIRD_ALIASES[kind]
        answer = at if fact.alike else options.index(right)
        return _Asked(fact.questions[turn], tuple(options), answer, tuple(aliases), third=at, third_kind=kind)

    def choice(self, fact: Knowledge) -> _Asked:
        right, *wrong = fact.options
        options = [right, *self.rng.sample(wrong, self.rng.choice((2, 3)))]
        unknown = None
        if self.rng.random() < 0.4:
            options[-1] = unknown = self._one(self.wording["knowledge"]["unknown"])
        self.rng.shuffle(options)
        aliases = tuple(() if each == unknown else _aliases(each) for each in options)
        at = None if unknown is None else options.index(unknown)
        return _Asked(fact.questions[0], tuple(options), options.index(right), aliases, unknown=at)

    def shown(self, asked: _Asked, form: Form) -> tuple[str, str, tuple[str, ...]]:
        """The prompt, the answer, and the marks of the options."""
        options = [capitalized(each) for each in asked.options]
        right = options[asked.right]
        if form in ("sentence", "short"):
            return self._free(asked, form, options), self._said(asked, form), ()
        if form == "option":
            listed = "\n".join(map(self.rng.choice(("- {}", "* {}", "{}")).format, options))
            return self._content(asked.question, listed, form), right, ()
        if form == "json" and self.rng.random() < 0.5:
            listed = "\n".join(map("- {}".format, options))
            answer = json.dumps({"answer": right}, ensure_ascii=False)
            return self._content(asked.question, listed, "json_text"), answer, ()
        letters = "abcd" if self.rng.random() < 0.5 else "ABCD"
        marks = tuple(("1234" if form == "number" else letters)[: len(options)])
        listed = self._listed(marks, options)
        if form == "json":
            return self._content(asked.question, listed, "json_letter"), f'{{"answer": "{marks[asked.right]}"}}', marks
        return self._content(asked.question, listed, form), marks[asked.right], marks

    def _listed(self, marks: Sequence[str], options: Sequence[str]) -> str:
        style = self.rng.choice(_LETTER_STYLES)
        between = "\n" if self.rng.random() < 0.5 else " "
        return between.join(style.format(mark) + option for mark, option in zip(marks, options, strict=True))

    def _free(self, asked: _Asked, form: Form, options: Sequence[str]) -> str:
        """The prompt of an answer in words, with the options in a list, in the question, or not at all."""
        if self.rng.random() < 0.4:
            return self._content(asked.question, "\n".join(map("- {}".format, options)), form)
        return self._content(asked.question if asked.third is None else asked.named(), "", form)

    def _said(self, asked: _Asked, form: Form) -> str:
        right = asked.options[asked.right]
        if form == "short":
            return capitalized(right) + self.rng.choice(("", "."))
        if asked.right == asked.third:
            return self.rng.choice(self.wording["knowledge"]["third_sentence"][asked.third_kind])
        return self.rng.choice(self.wording["knowledge"]["sentence"]).format(x=right)

    def _content(self, question: str, listed: str, form: str) -> str:
        instruction = self._one(self.wording["instruction"][form])
        if form.startswith("json"):
            instruction = instruction.format()
        layout = self._one(self.wording["knowledge"]["layout"])
        content = layout.format(question=question, options=listed, instruction=instruction)
        return _GAPS.sub("\n\n", _TRAILING.sub("", content)).strip()

    def system(self) -> list[dict[str, str]]:
        if self.rng.random() > 0.25:
            return []
        return [{"role": "system", "content": self._one(self.wording["knowledge"]["system"])}]


def _aliases(option: str) -> tuple[str, ...]:
    article, _, bare = option.partition(" ")
    return (option, bare) if article in ("a", "an", "the") else (option,)
