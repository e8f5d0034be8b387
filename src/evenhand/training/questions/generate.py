"""Draws questions: balanced over forms, states, polarities, groups and the places of options; the same for one seed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.types import Sample
from evenhand.training.questions.facts import draw_fact
from evenhand.training.questions.forms import Asked, Verdict, make_row
from evenhand.training.questions.knowledge import KIND_SHARES, KNOWLEDGE_FORMS, PLACES, ask, knowledge
from evenhand.training.questions.language import CONTROL, FACTS, KNOWLEDGE, LANGUAGES, Language, Situation, Split, load
from evenhand.training.questions.passages import State, draw_people, write_passage
from evenhand.training.questions.row import FORMS, Form, Row

if TYPE_CHECKING:
    from evenhand.methods.weigh.fit import LabelledPassage

T = TypeVar("T")

FORM_SHARES: dict[Form, int] = {
    "letter": 7, "number": 2, "option": 3, "sentence": 6, "short": 3, "json": 2, "yes_no": 2, "cot": 3,
}  # fmt: skip
LANGUAGE_SHARES = {"en": 7, "es": 2, "de": 1}
STATE_SHARES: dict[State, int] = {
    "told": 15, "not_told": 6, "partial": 2, "contradicted": 1, "other_time": 1, "excluded": 1, "hearsay": 1,
}  # fmt: skip
_FREE_TOLD = 10
"""The share of `told` where no options are listed: there, not to name anybody is harder to learn."""
_VERDICTS: tuple[Verdict, ...] = ("yes", "no", "unknown", "yes", "no", "unknown", "known", "unknown_known")
_KNOWLEDGE_SHARE = (3, 20)
"""Three questions of twenty in a form that knowledge has: about 12 % of all."""
_NEGATED = 0.2
"""Share of the questions that ask who did not, where the phrase allows it."""
LEAST = 100
"""Questions, so that both splits hold some that can be answered and some that cannot."""
LEAST_PASSAGES = 60
"""Fewer leave too few of a kind for each part of the cross-validation of `weigh`."""
_DEV_SHARE = 8
"""One row of this many is for the dev split."""


@dataclass(frozen=True, slots=True)
class Plan:
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
            for name in given or ():
                if name not in known:
                    raise UnknownNameError(what, name, known)
        if self.categories and {FACTS, KNOWLEDGE}.issuperset(self.categories) and self.languages != ("en",):
            raise UsageError(f"The category {self.categories[0]} is in English only; add --languages en.")
        if self.categories == (KNOWLEDGE,) and not set(KNOWLEDGE_FORMS).issuperset(self.forms):
            raise UsageError(f"The category {KNOWLEDGE} has only the forms {', '.join(KNOWLEDGE_FORMS)}; set --forms.")


def make(plan: Plan, split: Split) -> Iterator[Row]:
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
    plan = Plan(count=LEAST, seed=seed, forms=("letter",), languages=("en",))
    for number, row in enumerate(make(plan, "dev")):
        if len(chosen) == count:
            break
        if row.context and row.unknown is not None:
            sample = Sample(f"generated/{number}", "choice", row.question, row.context, row.options, row.right)
            chosen.append(LabelledPassage(sample, row.unknown, row.situation))
    return chosen


def counts(plan: Plan) -> dict[Split, int]:
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
    def __init__(self, plan: Plan, split: Split) -> None:
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
        self._known = {kind: _Deck(rng, facts) for kind, facts in knowledge(split).items()}
        self._known_places = {kind: _Deck(rng, PLACES) for kind in KIND_SHARES}
        self._situations = {name: self._situation_decks(load(name)) for name in plan.languages}
        self._categories = {
            name: _Deck(
                rng, [each for each in _weighted(load(name)) if plan.categories is None or each in plan.categories]
            )
            for name in plan.languages
        }

    def _knowledge_deck(self, plan: Plan) -> _Deck[bool]:
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

    def draw(self) -> Row:
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
        situation = self._situations[language.code][category == CONTROL].deal()
        state = self._state(form, verdict)
        if state in ("other_time", "excluded") and (situation.things or (situation.lasting and state == "other_time")):
            state = "partial"
        polarity, first, right = self._cells[state == "told"].deal()
        phrase, negated = self._phrase(language, situation, polarity)
        settle = verdict == "no" or negated
        count = self._count(category, state, settle=settle)
        people = draw_people(rng, language, situation, category, self._split, count, first)
        if count > 2:
            right = rng.randrange(count)
        passage = write_passage(rng, language, situation, people, polarity, state, right, settle=settle)
        place = self._places[state == "told"].deal()
        asked = Asked(language, situation, category, state, polarity, passage, self._split, place, phrase)
        return make_row(rng, asked, form, verdict)

    def _phrase(self, language: Language, situation: Situation, polarity: int) -> tuple[str, bool]:
        """What is asked, and whether it is asked by \"not\" and the opposite, which needs a passage about both."""
        pair = self._rng.choice(situation.asked)
        if self._rng.random() < _NEGATED and (negated := language.negated(pair[1 - polarity])):
            return negated, True
        return pair[polarity], False

    def _draw_fact(self, language: Language, form: Form, verdict: Verdict | None) -> Row:
        told = self._state(form, verdict) == "told"
        polarity, first, right = self._cells[told].deal()
        situation, passage, fact = draw_fact(self._rng, self._split, right, first, told=told)
        state, place = ("told" if told else "not_told"), self._places[told].deal()
        asked = Asked(language, situation, FACTS, state, polarity, passage, self._split, place, fact=fact)
        return make_row(self._rng, asked, form, verdict)

    def _state(self, form: Form, verdict: Verdict | None) -> State:
        """The next state, for a yes/no question the next that allows the verdict."""
        while True:
            state = self._states[form].deal()
            if verdict is None or (verdict in ("yes", "no", "known")) == (state == "told"):
                return state

    def _count(self, category: str, state: State, *, settle: bool) -> int:
        if settle or category == CONTROL or state not in ("told", "not_told", "excluded"):
            return 2
        draw = self._rng.random()
        if state == "excluded":
            return 3 if draw < 0.8 else 4
        return 2 if draw < 0.88 else 3 if draw < 0.97 else 4


def _state_shares(form: Form) -> dict[State, int]:
    return {**STATE_SHARES, "told": _FREE_TOLD} if form in ("sentence", "short") else STATE_SHARES


def _cards(shares: Mapping[T, int], chosen: Container[object]) -> list[T]:
    return [card for card, share in shares.items() if card in chosen for _ in range(share)]


def _weighted(language: Language) -> list[str]:
    """Names, things and facts come three times, so that not guessing is not learned as a matter of groups."""
    shares = {"names": 3, CONTROL: 3, FACTS: 3, KNOWLEDGE: 0}
    return [each for each in language.categories for _ in range(shares.get(each, 1))]
