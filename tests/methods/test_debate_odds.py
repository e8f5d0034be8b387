"""The debate's scoring by odds: how likely the referee says that a statement is prejudiced, one at a time."""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from evenhand.benchmarks.debates import ROLES, Statement, statements_in
from evenhand.core.errors import PlanError
from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Sample, TokenLogprob, Unscored
from evenhand.methods.base import METHODS
from evenhand.models.base import Feature
from evenhand.models.fake import FunctionModel, Reply
from evenhand.session import Session
from support.referees import ODDS, STATEMENT, VERDICT, asked_for, verdict

DEBATE = METHODS.get("debate")
SAMPLE = Sample(
    "age/tea",
    "debate",
    "Is tea good?",
    metadata={
        "about": "Prejudice by age.",
        "title": "drinking tea",
        ROLES: [{"name": name, "description": f"a {name} person"} for name in ("young", "old")],
    },
)
SAID = ("Tea is for all.", "The old should drink less of it.")
LIKELY = dict(zip(SAID, (0.25, 0.75), strict=True))


def odds_of(chance: float) -> Completion:
    top = (("Yes", math.log(chance)), ("No", math.log(1 - chance)))
    return Completion("Yes", logprobs=(TokenLogprob("Yes", top[0][1], top),))


def likely(text: str) -> Completion:
    """The odds of the statement that is asked about."""
    return odds_of(next(chance for said, chance in LIKELY.items() if said in text))


class Debaters:
    """Two who speak in turn, and a referee who writes and says what it is told to."""

    def __init__(self, written: str | None = None, odds: Any = likely) -> None:
        self._written, self._odds = written, odds
        self._turns = count()

    def __call__(self, messages: Sequence[Message], params: Params) -> Reply:
        kind = asked_for(params)
        if kind == STATEMENT:
            return SAID[next(self._turns) % 2]
        if kind == VERDICT:
            return verdict([2, 2]) if self._written is None else self._written
        return self._odds(messages[-1].content)


async def hold(
    reply: Debaters, features: Sequence[Feature] = ("schema", "seed", "logprobs"), **options: Any
) -> tuple[Outcome, list[str]]:
    """The outcome, and which calls were made."""
    model = FunctionModel(reply, features=features)
    session = Session(SAMPLE, {"base": model}, 0, DEBATE.with_options({"rounds": 1, "scoring": "odds", **options}))
    return await DEBATE.run(SAMPLE, session), [asked_for(params) for _, params in model.requests]


def found_in(outcome: Outcome) -> list[Statement]:
    return list(statements_in(outcome.notes))


async def test_scores_are_the_odds_and_rank_and_reasons_those_of_the_verdict():
    outcome, calls = await hold(Debaters())

    assert calls == [STATEMENT, STATEMENT, VERDICT, ODDS, ODDS]
    found = found_in(outcome)
    assert [each.score for each in found] == [pytest.approx(2.5), pytest.approx(7.5)]
    assert sorted(each.rank or 0 for each in found) == [1, 2]
    assert {each.why for each in found} == {"objection to a", "objection to b"}
    assert outcome.result == Answer(SAID[0])


async def test_the_odds_of_a_statement_are_asked_for_in_one_token_and_without_its_speaker():
    model = FunctionModel(Debaters(), features=("schema", "seed", "logprobs"))
    session = Session(SAMPLE, {"base": model}, 0, DEBATE.with_options({"rounds": 1, "scoring": "odds"}))

    await DEBATE.run(SAMPLE, session)

    asked = [(messages, params) for messages, params in model.requests if asked_for(params) == ODDS]
    assert {(params.max_tokens, params.temperature) for _, params in asked} == {(1, 0)}
    assert [sum(text in messages[-1].content for text in SAID) for messages, _ in asked] == [1, 1]
    assert all(SAMPLE.prompt in messages[-1].content for messages, _ in asked)


async def test_numbers_ask_nothing_further():
    _, calls = await hold(Debaters(), scoring="numbers")

    assert calls == [STATEMENT, STATEMENT, VERDICT]


async def test_a_verdict_that_cannot_be_read_still_leaves_scores():
    outcome, calls = await hold(Debaters(written="Hard to say."))

    assert calls.count(VERDICT) == 2
    assert [each.score for each in found_in(outcome)] == [pytest.approx(2.5), pytest.approx(7.5)]
    assert {(each.rank, each.why) for each in found_in(outcome)} == {(None, "")}
    assert outcome.notes["problems"] == ["the judge gave no rating of prejudice_a"]
    assert outcome.result == Answer(SAID[0])


async def test_odds_that_cannot_be_read_are_no_score_and_leave_rank_and_reasons():
    outcome, _ = await hold(Debaters(odds=lambda text: "Perhaps." if SAID[0] in text else odds_of(0.75)))

    first, second = found_in(outcome)
    assert (first.score, first.written) == (None, None)
    assert first.rank is not None
    assert first.why.startswith("objection")
    assert second.score == pytest.approx(7.5)
    assert outcome.result == Answer(SAID[1])


async def test_a_round_without_any_odds_is_unscored_whatever_the_verdict_says():
    outcome, _ = await hold(Debaters(odds=lambda _: "Perhaps."))

    assert [each.score for each in found_in(outcome)] == [None, None]
    assert isinstance(outcome.result, Unscored)


async def test_without_logprobs_the_word_decides():
    outcome, calls = await hold(
        Debaters(odds=lambda text: "No" if SAID[0] in text else "Yes."), features=("schema", "seed")
    )

    assert calls.count(ODDS) == 2
    assert [each.score for each in found_in(outcome)] == [0.0, 10.0]


async def test_debaters_hear_the_odds_as_a_whole_number():
    model = FunctionModel(Debaters(odds=lambda _: odds_of(0.64)), features=("schema", "seed", "logprobs"))
    session = Session(SAMPLE, {"base": model}, 0, DEBATE.with_options({"rounds": 2, "scoring": "odds"}))

    outcome = await DEBATE.run(SAMPLE, session)

    assert {each.written for each in found_in(outcome)} == {6}
    again = [messages[-1].content for messages, params in model.requests if asked_for(params) == STATEMENT][2]
    assert "score of 6 out of 10" in again
    assert "6.4" not in again


@pytest.mark.parametrize("method", ["debate", "rlaif"])
def test_other_ways_to_score_are_refused(method: str):
    with pytest.raises(PlanError, match=f"option scoring of the method {method} must be numbers or odds, not 'words'"):
        METHODS.get(method).with_options({"scoring": "words"})
