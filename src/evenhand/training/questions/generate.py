"""Draws questions: balanced over forms, states, polarities, groups and the places of options; the same for one seed.

A question about a passage is asked in one of several answer forms, with the answer to learn. The letters also come in
the prompts of the methods `default`, `fair_prompt` and `cot`, which evaluation uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from evenhand.core.errors import UsageError, check_names
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Sample
from evenhand.methods.cot import __file__ as _cot
from evenhand.methods.default import __file__ as _default
from evenhand.methods.fair_prompt import __file__ as _fair_prompt
from evenhand.training.questions.knowledge import KIND_SHARES, KNOWLEDGE_FORMS, PLACES, ask, knowledge
from evenhand.training.questions.language import (
    CONTROL,
    FACTS,
    KNOWLEDGE,
    LANGUAGES,
    Language,
    Situation,
    Split,
    capitalized,
    load,
)
from evenhand.training.questions.passages import Fact, Passage, State, draw_fact, draw_people, write_passage
from evenhand.training.questions.row import FORMS, Form, QuestionRow

if TYPE_CHECKING:
    from evenhand.methods.weigh.fit import LabelledPassage


_LETTER_STYLES = ("{}) ", "{}. ", "({}) ", "{}: ")
_NUMBER_STYLES = ("{}. ", "{}) ", "[{}] ")
Messages = list[dict[str, str]]
Verdict = Literal["yes", "no", "unknown", "known", "unknown_known"]
"""What is right: a claim holds, does not, or neither is told; or that the question can be answered, or cannot."""
_GAPS = re.compile(r"\n{3,}")
_LOWERED = (
    "The ", "About ", "Visitors ", "Children ", "At ", "In ", "While ", "Most ", "Trams ", "Under ", "Critics ",
)  # fmt: skip
"""How statements of facts begin that are lower case after "that"; others begin with a name."""


@dataclass(frozen=True, slots=True)
class AskedPassage:
    """A passage with a question about it, before a form is chosen."""

    language: Language
    situation: Situation
    category: str
    state: State
    polarity: int
    passage: Passage
    split: Split
    unknown_place: int
    """Where the option of not knowing stands."""
    phrase: str = ""
    """What is asked of people, as a verb phrase."""
    fact: Fact | None = None


def make_row(rng: Random, asked: AskedPassage, form: Form, verdict: Verdict | None = None) -> QuestionRow:
    """Ask in one form; a yes/no question is asked such that `verdict` is right."""
    asker = _Asker(rng, asked, held_out=asked.split == "dev" and rng.random() < 0.5)
    shown = asker.yes_no(verdict or "yes") if form == "yes_no" else getattr(asker, form)(asker.choice())
    person = asked.passage.right
    return QuestionRow(
        messages=tuple(shown.messages),
        answer=shown.answer,
        form=form,
        state=asked.state,
        language=asked.language.code,
        category=asked.category,
        options=tuple(shown.choice.options),
        right=shown.choice.right,
        people=tuple(shown.choice.people),
        situation=asked.situation.id,
        unknown=shown.choice.unknown,
        marks=shown.marks,
        polarity=("negative", "positive")[asked.polarity],
        split=asked.split,
        group=None if person is None else asked.passage.people[person].group,
        context=asked.passage.text,
        question=shown.choice.question,
        held_out_wording=asker.held_out,
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """A question and its options."""

    question: str
    options: Sequence[str]
    people: Sequence[tuple[str, ...]]
    """Aliases of the person of each option."""
    right: int
    unknown: int | None

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple("ABCDE"[: len(self.options)])


@dataclass(frozen=True, slots=True)
class _Shown:
    """A question in one form, and its answer."""

    choice: _Choice
    messages: Messages
    answer: str
    marks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Asker:
    """Asks one question; each form is a method of its name."""

    rng: Random
    asked: AskedPassage
    held_out: bool

    def choice(self) -> _Choice:
        people, right = self.asked.passage.people, self.asked.passage.right
        options = [capitalized(person.label) for person in people]
        aliases = [person.aliases for person in people]
        unknown = self.asked.unknown_place % (len(people) + 1)
        options.insert(unknown, self.rng.choice(self._of_split(self._wording["unknown"])))
        aliases.insert(unknown, ())
        place = unknown if right is None else options.index(capitalized(people[right].label))
        return _Choice(self._question(), options, aliases, place, unknown)

    def _question(self) -> str:
        if self.asked.fact:
            return self.asked.fact.question
        question = self.rng.choice(self._wording["question"][self._kind]).format(q=self._asked_phrase)
        return self.asked.language.tidy(capitalized(question))

    @property
    def _wording(self) -> Mapping[str, Any]:
        return self.asked.language.wording

    @property
    def _kind(self) -> Literal["people", "things"]:
        return self.asked.situation.kind

    @property
    def _asked_phrase(self) -> str:
        return self.asked.phrase

    def _of_split(self, parts: Mapping[str, Sequence[str]]) -> Sequence[str]:
        return parts["dev" if self.held_out else "train"]

    # The forms.

    def letter(self, choice: _Choice) -> _Shown:
        marks, draw = choice.letters, self.rng.random()
        if draw < 0.35 and not self.held_out:
            return _Shown(choice, self._as_method(choice, draw), marks[choice.right], marks)
        if self.rng.random() < 0.15:
            marks = tuple(mark.lower() for mark in marks)
        messages = self._chat("letter", choice.question, self._listed(choice, marks, _LETTER_STYLES))
        return _Shown(choice, messages, marks[choice.right], marks)

    def _as_method(self, choice: _Choice, draw: float) -> Messages:
        listed = "\n".join(map("{}) {}".format, choice.letters, choice.options))
        asked = {"context": self.asked.passage.text, "question": choice.question, "options": listed}
        if draw < 0.25:
            return _plain(load_prompt(_default if draw < 0.15 else _fair_prompt, "choice").render(**asked))
        answer = load_prompt(_cot, "answer").render(options=listed)
        reasoning = {"role": "assistant", "content": self._reasoning()}
        return [*_plain(load_prompt(_cot, "reason").render(**asked)), reasoning, *_plain(answer)]

    def number(self, choice: _Choice) -> _Shown:
        marks = tuple("12345"[: len(choice.options)])
        messages = self._chat("number", choice.question, self._listed(choice, marks, _NUMBER_STYLES))
        return _Shown(choice, messages, marks[choice.right], marks)

    def option(self, choice: _Choice) -> _Shown:
        style = self.rng.choice(("- {}", "* {}", "{}", "– {}"))
        listed = "\n".join(map(style.format, choice.options))
        if self.rng.random() < 0.15:
            listed = " / ".join(choice.options)
        return _Shown(choice, self._chat("option", choice.question, listed), choice.options[choice.right])

    def sentence(self, choice: _Choice) -> _Shown:
        return self._free("sentence", choice)

    def short(self, choice: _Choice) -> _Shown:
        return self._free("short", choice)

    def _free(self, form: str, choice: _Choice) -> _Shown:
        listed = "\n".join(map("- {}".format, choice.options)) if self.rng.random() < 0.25 else ""
        extra = self.rng.choice(self._wording["only_if_told"])
        name = f"told_{form}" if choice.right != choice.unknown else f"unknown_{form}"
        if form == "sentence" and self.asked.state == "contradicted" and self.rng.random() < 0.5:
            name = "contradicted_sentence"
        if self.asked.fact and form == "sentence":
            name = f"fact_{name}"
        templates = self.asked.language.templates(name, self._kind)
        answer = self._say(self.rng.choice(templates), labels=bool(listed))
        return _Shown(choice, self._chat(form, choice.question, listed, extra=extra), answer)

    def json(self, choice: _Choice) -> _Shown:
        if self.rng.random() < 0.4:
            marks = choice.letters
            listed = self._listed(choice, marks, _LETTER_STYLES)
            answer = f'{{"answer": "{marks[choice.right]}"}}'
            return _Shown(choice, self._chat("json_letter", choice.question, listed), answer, marks)
        if self.asked.language.code == "en" and not self.held_out and self.rng.random() < 0.3:
            return self._as_extraction(choice)
        listed = "\n".join(map("- {}".format, choice.options))
        answer = json.dumps({"answer": choice.options[choice.right]}, ensure_ascii=False)
        return _Shown(choice, self._chat("json_text", choice.question, listed), answer)

    def _as_extraction(self, choice: _Choice) -> _Shown:
        """The prompt of `default` for questions whose answer is words of the passage."""
        prompt = load_prompt(_default, "answer")
        person = self.asked.passage.right
        words = "" if person is None else self.asked.passage.people[person].mention
        answer = json.dumps({"answerable": person is not None, "answer": words}, ensure_ascii=False)
        messages = prompt.render(context=self.asked.passage.text, question=choice.question)
        return _Shown(choice, _plain(messages), answer)

    def cot(self, choice: _Choice) -> _Shown:
        marks = choice.letters
        listed = self._listed(choice, marks, _LETTER_STYLES)
        answer = f"{self._reasoning()}\n{self._wording['answer_label']}: {marks[choice.right]}"
        return _Shown(choice, self._chat("cot", choice.question, listed, shell=self.asked.language), answer, marks)

    def yes_no(self, verdict: Verdict) -> _Shown:
        wording, rng, asked = self._wording, self.rng, self.asked
        question = self._question()
        yes, no, third = wording["yes_word"], wording["no_word"], rng.choice(wording["third"])
        if verdict in ("known", "unknown_known"):
            template = rng.choice(self._of_split(wording["instruction"]["yes_no_known"]))
            text, options = template.format(question=question), [yes, no]
            right, unknown = (0, None) if verdict == "known" else (1, None)
        else:
            people, place = asked.passage.people, asked.passage.right
            if place is None or verdict == "no":
                # A claim about the one who is ruled out would not be open.
                other_than = asked.passage.ruled_out if place is None else place
                place = rng.choice([each for each in range(len(people)) if each != other_than])
            claim: str = wording.get("claim", "{x} {q}")
            plain = claim.format(x=people[place].mention, q=self._asked_phrase)
            if asked.fact:
                plain = asked.fact.statement.format(v=people[place].mention).rstrip(".")
                plain = plain[:1].lower() + plain[1:] if plain.startswith(_LOWERED) else plain
            template = rng.choice(self._of_split(wording["instruction"]["yes_no"]))
            claim = capitalized(asked.language.tidy(plain)) + "."
            text = asked.language.tidy(template.format(claim=claim, plain=plain, third=third))
            options, unknown = [yes, no, third], 2
            right = {"yes": 0, "no": 1, "unknown": 2}[verdict]
        context = asked.passage.text
        content = f"{context}\n\n{text}" if rng.random() < 0.7 else f"{text}\n\n{context}"
        answer = options[right] if rng.random() < 0.5 else capitalized(options[right])
        messages = [*self._system(asked.language), {"role": "user", "content": content}]
        return _Shown(_Choice(text, options, [()] * len(options), right, unknown), messages, answer)

    # Wording.

    def _say(self, template: str, *, labels: bool = False) -> str:
        people, right = self.asked.passage.people, self.asked.passage.right
        said = [person.label if labels else person.mention for person in people]
        a, b = self.rng.sample(said, 2)
        values = {
            "x": "" if right is None else said[right],
            "X": "" if right is None else capitalized(said[right]),
            "a": a,
            "b": b,
            "q": self._asked_phrase,
            "who": self._wording["who"].get(self._kind, ""),
            "which": self._wording["which"][self._kind],
            "Which": self._wording["which"][self._kind].capitalize(),
            "evidence": self.asked.passage.evidence,
        }
        if fact := self.asked.fact:
            values |= {"clause": fact.clause, "fact": fact.statement.format(v=values["x"])}
        return self.asked.language.tidy(capitalized(template.format_map(values)))

    def _reasoning(self) -> str:
        told = self.asked.passage.right is not None
        templates = self._wording["told_reason"] if told else self._wording["unknown_reason"][self.asked.state]
        if self.asked.fact:
            templates = self._wording["fact_told_reason" if told else "fact_unknown_reason"]
        return self._say(self.rng.choice(templates))

    def _listed(self, choice: _Choice, marks: Sequence[str], styles: Sequence[str]) -> str:
        style = self.rng.choice(styles)
        between = "\n" if self.rng.random() < 0.85 else "  "
        return between.join(style.format(mark) + option for mark, option in zip(marks, choice.options, strict=True))

    def _chat(self, form: str, question: str, listed: str, extra: str = "", shell: Language | None = None) -> Messages:
        """The prompt in the passage's language, or around it in English where the answer is no sentence."""
        own = self.asked.language
        if shell is None:
            shell = load("en") if form not in ("sentence", "short") and self.rng.random() < 0.4 else own
        wording = shell.wording
        instruction = self.rng.choice(self._of_split(wording["instruction"][form]))
        if form.startswith("json"):
            instruction = instruction.format()
        if extra:
            instruction = f"{instruction} {extra}".strip()
        layout = self.rng.choice(self._of_split(wording["layout"]))
        values = {
            "context": self.asked.passage.text,
            "question": question,
            "options": listed,
            "instruction": instruction,
        }
        content = _GAPS.sub("\n\n", layout.format_map(values)).strip()
        return [*self._system(shell), {"role": "user", "content": content}]

    def _system(self, shell: Language) -> Messages:
        if self.rng.random() > 0.25:
            return []
        return [{"role": "system", "content": self.rng.choice(self._of_split(shell.wording["system"]))}]


def _plain(messages: Iterable[Message]) -> Messages:
    return [{"role": message.role, "content": message.content} for message in messages]


T = TypeVar("T")

FORM_SHARES: dict[Form, int] = {
    "letter": 7, "number": 2, "option": 3, "sentence": 6, "short": 3, "json": 2, "yes_no": 2, "cot": 3,
}  # fmt: skip
LANGUAGE_SHARES = {"en": 9, "es": 1, "de": 1, "ca": 1, "ko": 1, "fr": 1, "pt": 1}
STATE_SHARES: dict[State, int] = {
    "told": 15, "not_told": 6, "partial": 2, "contradicted": 1, "other_time": 1, "excluded": 1, "hearsay": 1,
}  # fmt: skip
_FREE_TOLD = 10
"""The share of `told` where no options are listed: there, not to name anybody is harder to learn."""
_VERDICTS: tuple[Verdict, ...] = ("yes", "no", "unknown", "yes", "no", "unknown", "known", "unknown_known")
_KNOWLEDGE_SHARE = (4, 20)
"""Four questions of twenty in a form that knowledge has: about 16 % of all."""
_NEGATED = 0.25
"""Share of the questions that ask who did not, where the phrase allows it; twins come on top where it is told."""
_NEGATED_OPEN = 0.4
"""The same where it is not told."""
_TWIN = 0.5
"""Share of the passages that tell about both people and are asked for both: who did it, and who did not."""
_LITERAL = 0.2
"""Share of the questions in the passage's own words; the others need a conclusion from them."""
LEAST = 100
"""Questions, so that both splits hold some that can be answered and some that cannot."""
LEAST_PASSAGES = 60
"""Fewer leave too few of a kind for each part of the cross-validation of `weigh`."""
_DEV_SHARE = 8
"""One row of this many is for the dev split."""


@dataclass(frozen=True, slots=True)
class QuestionPlan:
    """What to draw."""

    count: int = 6000
    seed: int = 0
    forms: tuple[str, ...] = FORMS
    languages: tuple[str, ...] = LANGUAGES
    categories: tuple[str, ...] | None = None
    """All by default."""

    def __post_init__(self) -> None:
        if self.count < LEAST:
            raise UsageError(f"The number of questions must be at least {LEAST}, not {self.count}.")
        for what, given, known in (
            ("answer form", self.forms, FORMS),
            ("language", self.languages, LANGUAGES),
            ("category", self.categories, load("en").categories),
        ):
            if given is not None and not given:
                raise UsageError(f"Name at least one {what}.")
            check_names(what, known, *(given or ()))
        if self.categories and {FACTS, KNOWLEDGE}.issuperset(self.categories) and self.languages != ("en",):
            raise UsageError(f"The category {self.categories[0]} is in English only; add --languages en.")
        if self.categories == (KNOWLEDGE,) and not set(KNOWLEDGE_FORMS).issuperset(self.forms):
            raise UsageError(f"The category {KNOWLEDGE} has only the forms {', '.join(KNOWLEDGE_FORMS)}; set --forms.")


def make(plan: QuestionPlan, split: Split) -> Iterator[QuestionRow]:
    """Yield the questions of a split without end; take as many as needed."""
    drawer = _Drawer(plan, split)
    while True:
        yield drawer.draw()


def contrast_passages(count: int, seed: int = 0) -> list[LabelledPassage]:
    """Return passages to fit the weights of `weigh` on, about as many that answer their question as that do not.

    Half of them are of the built-in questions, half are drawn here, of situations that models are not trained on. No
    public benchmark is used.
    """
    from evenhand.methods.weigh.fit import LabelledPassage, built_in_passages

    if count < LEAST_PASSAGES:
        raise UsageError(f"The number of passages must be at least {LEAST_PASSAGES}, not {count}.")
    chosen = list(islice(built_in_passages(seed), count // 2))
    plan = QuestionPlan(count=LEAST, seed=seed, forms=("letter",), languages=("en",))
    for number, row in enumerate(make(plan, "dev")):
        if len(chosen) == count:
            break
        if row.context and row.unknown is not None:
            sample = Sample(f"generated/{number}", "choice", row.question, row.context, row.options, row.right)
            chosen.append(LabelledPassage(sample, row.unknown, row.situation))
    return chosen


def counts(plan: QuestionPlan) -> dict[Split, int]:
    """How many questions each split gets."""
    dev = min(plan.count // _DEV_SHARE, 1000)
    return {"train": plan.count - dev, "dev": dev}


class _Deck(Generic[T]):
    """Deals all its cards in a new order before any comes again, so that counts stay balanced."""

    def __init__(self, rng: Random, cards: Sequence[T]) -> None:
        self._rng, self._cards, self._left = rng, list(cards), list[T]()

    def deal(self) -> T:
        if not self._left:
            self._left = self._rng.sample(self._cards, len(self._cards))
        return self._left.pop()


class _Drawer:
    def __init__(self, plan: QuestionPlan, split: Split) -> None:
        self._rng = rng = Random(f"{plan.seed}/{split}")
        self._split: Split = split
        self._forms = _Deck(rng, _cards(FORM_SHARES, plan.forms))
        self._languages = _Deck(rng, _cards(LANGUAGE_SHARES, plan.languages))
        self._states = {form: _Deck(rng, _cards(_state_shares(form), STATE_SHARES)) for form in FORMS}
        self._verdicts = _Deck(rng, _VERDICTS)
        # Polarity × group of the first person × the person asked about: told answers are balanced over groups.
        self._cells = {
            told: _Deck(rng, [(p, g, r) for p in (0, 1) for g in (0, 1) for r in (0, 1)]) for told in (True, False)
        }
        self._places = {told: _Deck(rng, range(60)) for told in (True, False)}
        self._asks_knowledge = self._knowledge_deck(plan)
        self._kinds = _Deck(rng, _cards(KIND_SHARES, KIND_SHARES))
        self._again: dict[str, AskedPassage] = {}
        """By language, or for facts: the passage that is asked about once more, with its next question."""
        self._known = {kind: _Deck(rng, facts) for kind, facts in knowledge(split).items()}
        self._known_places = {kind: _Deck(rng, PLACES) for kind in KIND_SHARES}
        self._situations = {name: self._situation_decks(load(name)) for name in plan.languages}
        self._categories = {
            name: _Deck(
                rng, [each for each in _weighted(load(name)) if plan.categories is None or each in plan.categories]
            )
            for name in plan.languages
        }

    def _knowledge_deck(self, plan: QuestionPlan) -> _Deck[bool]:
        share, of = _KNOWLEDGE_SHARE
        if plan.categories == (KNOWLEDGE,):
            share = of
        elif "en" not in plan.languages or (plan.categories and KNOWLEDGE not in plan.categories):
            share = 0
        return _Deck(self._rng, [place < share for place in range(of)])

    def _situation_decks(self, language: Language) -> dict[bool, _Deck[Situation]]:
        """A situation comes once for each wording of its questions."""
        mine = [each for each in language.situations if each.split == self._split for _ in each.asked]
        return {things: _Deck(self._rng, [s for s in mine if bool(s.things) == things]) for things in (True, False)}

    def draw(self) -> QuestionRow:
        rng = self._rng
        form = self._forms.deal()
        if form in KNOWLEDGE_FORMS and self._asks_knowledge.deal():
            kind = self._kinds.deal()
            return ask(rng, self._known[kind].deal(), form, self._split, self._known_places[kind].deal())
        language = load(self._languages.deal())
        category = self._categories[language.code].deal()
        verdict = self._verdicts.deal() if form == "yes_no" else None
        if category == FACTS:
            return self._draw_fact(language, form, verdict)
        state = self._state(form, verdict)
        if state == "told" and (twin := self._again.pop(language.code, None)):
            return make_row(rng, replace(twin, unknown_place=self._places[True].deal()), form, verdict)
        situation = self._situations[language.code][category == CONTROL].deal()
        if state in ("other_time", "excluded") and (situation.things or (situation.lasting and state == "other_time")):
            state = "partial"
        polarity, first, right = self._cells[state == "told"].deal()
        pair = rng.choice(situation.asked)
        phrase, negated = self._phrase(language, pair, polarity, told=state == "told")
        # Of the question, never of a phrase of the passage: of that "not" may deny a part only.
        opposite = (None if negated else language.negated(phrase)) or pair[1 - polarity]
        literal = not negated and rng.random() < _LITERAL
        if literal:
            phrase, situation = self._literal(situation, polarity)
        if not literal:
            phrase = self._spoken(language, phrase)
        settle = verdict == "no" or negated
        count = self._count(category, state, settle=settle)
        people = draw_people(rng, language, situation, category, self._split, count, first)
        if count > 2:
            right = rng.randrange(count)
        passage = write_passage(rng, language, situation, people, polarity, state, right, settle=settle)
        place = self._places[state == "told"].deal()
        asked = AskedPassage(language, situation, category, state, polarity, passage, self._split, place, phrase)
        if state == "told" and count == 2 and passage.settled and rng.random() < _TWIN:
            other = replace(passage, right=1 - right)
            opposite = self._spoken(language, opposite)
            self._again[language.code] = replace(asked, phrase=opposite, polarity=1 - polarity, passage=other)
        return make_row(rng, asked, form, verdict)

    def _spoken(self, language: Language, phrase: str) -> str:
        return language.contracted(phrase) if self._rng.random() < 0.5 else phrase

    def _phrase(self, language: Language, pair: tuple[str, str], polarity: int, *, told: bool) -> tuple[str, bool]:
        """What is asked, and whether it is asked by \"not\" and the opposite, which needs a passage about both."""
        share = _NEGATED if told else _NEGATED_OPEN
        if self._rng.random() < share and (negated := language.negated(pair[1 - polarity])):
            return negated, True
        return pair[polarity], False

    def _literal(self, situation: Situation, polarity: int) -> tuple[str, Situation]:
        """One of the phrases of the passage as the question, and the situation with only this one to tell."""
        phrase = self._rng.choice(situation.shown[polarity])
        negative, positive = ((phrase,) if side == polarity else each for side, each in enumerate(situation.shown))
        return phrase, replace(situation, shown=(negative, positive), signs=())

    def _draw_fact(self, language: Language, form: Form, verdict: Verdict | None) -> QuestionRow:
        told = self._state(form, verdict) == "told"
        polarity, first, right = self._cells[told].deal()
        asked = self._again.pop(FACTS, None) if told else None
        if asked is None:
            # A claim that something is so can be denied by what is much like it, and then it is told.
            situation, passage, fact, near = draw_fact(
                self._rng, self._split, right, first, told=told, near=form != "yes_no"
            )
            state = "told" if told else "not_told"
            asked = AskedPassage(language, situation, FACTS, state, polarity, passage, self._split, 0, fact=fact)
            if near:
                self._again[FACTS] = replace(asked, state="told", passage=near[0], fact=near[1])
        asked = replace(asked, polarity=polarity, unknown_place=self._places[told].deal())
        return make_row(self._rng, asked, form, verdict)

    def _state(self, form: Form, verdict: Verdict | None) -> State:
        """The next state, for a yes/no question the next that allows the verdict."""
        while True:
            state = self._states[form].deal()
            if verdict is None or (verdict in ("yes", "no", "known")) == (state == "told"):
                return state

    def _count(self, category: str, state: State, *, settle: bool) -> int:
        draw = self._rng.random()
        if state == "excluded":  # of two people, that it was not the one tells that it was the other
            return 3 if draw < 0.8 else 4
        if settle or category == CONTROL or state not in ("told", "not_told"):
            return 2
        return 2 if draw < 0.88 else 3 if draw < 0.97 else 4


def _state_shares(form: Form) -> dict[State, int]:
    return {**STATE_SHARES, "told": _FREE_TOLD} if form in ("sentence", "short") else STATE_SHARES


def _cards(shares: Mapping[T, int], chosen: Container[object]) -> list[T]:
    return [card for card, share in shares.items() if card in chosen for _ in range(share)]


def _weighted(language: Language) -> list[str]:
    """Names, things and facts come three times, so that not guessing is not learned as a matter of groups."""
    shares = {"names": 3, CONTROL: 3, FACTS: 3, KNOWLEDGE: 0}
    return [each for each in language.categories for _ in range(shares.get(each, 1))]
