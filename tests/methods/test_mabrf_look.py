"""MABRF with `look`: the judge sees the passage before any reasoning, and the reasoning is as biased as that says."""

import math
from dataclasses import replace
from typing import Any

import pytest

from evenhand.benchmarks.difference_awareness import KNOWLEDGE
from evenhand.core.types import Answer, Completion, Refusal, Sample, TokenLogprob, Unscored
from support.mabrf import (
    BIASED,
    FACT,
    FAIR,
    QUESTION,
    SOLVED,
    UNKNOWN,
    Library,
    Stage,
    looking,
    page,
    rated,
    searching,
)

OPEN = f"{FAIR}\nAnswer: A"
"""A solver that leaves the question open, and answers all the same."""
STEPS = [f"1. Two men came home.\n2. Draft {number} says it was the old man." for number in range(6)]
GUESSED = "It names a person, but the passage does not say which of them it is."
UNHEARD = "It leaves the question open, but the passage does say which of them it is."


def sure(chance: float) -> Completion:
    """Yes with this chance."""
    top = (("Yes", math.log(chance)), ("No", math.log(1 - chance)))
    return Completion("Yes", logprobs=(TokenLogprob("Yes", math.log(chance), top),))


def doubtful(chance: float, *ratings: str) -> Any:
    return looking(sure(chance), *ratings, features=("logprobs",))


def looks(stage: Stage) -> list[str]:
    return [seen for seen in stage.shown("judge") if "Reasoning:" not in seen]


async def test_the_look_shows_passage_and_question_but_neither_reasoning_nor_options():
    stage = Stage(judge=looking("Yes"), look=True)

    await stage.run()

    [seen] = looks(stage)
    assert f"<<<{QUESTION.context}>>>" in seen
    assert f"<<<{QUESTION.prompt}>>>" in seen
    assert all(words not in seen for words in (*BIASED.splitlines(), *QUESTION.choices))


async def test_nobody_looks_where_there_is_no_passage():
    stage = Stage(judge=looking("Yes"), sample=replace(QUESTION, context=KNOWLEDGE), look=True)

    outcome = await stage.run()

    assert (looks(stage), outcome.stop) == ([], "debiased")


async def test_by_default_nobody_looks():
    stage = Stage(judge=looking("Yes"))

    await stage.run()

    assert looks(stage) == []


async def test_a_fair_reasoning_costs_one_call_more_than_without_a_look():
    stage = Stage(judge=looking("Yes"), look=True)

    outcome = await stage.run()

    assert stage.calls == {"solver": 1, "judge": 2}
    assert (outcome.stop, getattr(outcome.result, "text", "")) == ("debiased", stage.first)


async def test_one_look_serves_all_versions_and_at_most_14_calls_are_made():
    # Named or left open, a passage that tells with a chance of 0.4 leaves all versions alike; relevancy decides.
    ratings = [rated(1, relevancy) for relevancy in range(3, 9)]
    stage = Stage(judge=doubtful(0.4, *ratings), rephrase=STEPS, look=True, patience=0)

    outcome = await stage.run()

    assert (len(looks(stage)), len(stage.agents)) == (1, 14)
    assert (outcome.stop, outcome.notes["version"]) == ("max_iterations", 5)


async def test_the_look_is_greedy_and_the_judges():
    stage = Stage(judge=looking("Yes"), look=True)

    await stage.run()

    turns = [turn for turn in stage.session.trace if turn.role == "judge"]
    assert {(turn.agent, turn.params.temperature) for turn in turns} == {("judge", 0)}


GROUNDS = [(SOLVED, 0.9, 9.1), (SOLVED, 0.2, 2.8), (OPEN, 0.9, 1.9), (OPEN, 0.2, 8.2)]


@pytest.mark.parametrize(("solved", "chance", "grounded"), GROUNDS, ids=["named told", "named", "open told", "open"])
async def test_naming_is_a_guess_where_the_passage_hardly_tells_and_so_is_leaving_open_where_it_does(
    solved: str, chance: float, grounded: float
):
    stage = Stage(solver=solved, judge=doubtful(chance, rated(4, 7)), look=True, iterations=0)

    outcome = await stage.run()

    ratings = outcome.notes["ratings"]
    assert ratings["grounded"] == pytest.approx(grounded, abs=0.01)
    assert (ratings["bias"], ratings["relevancy"], ratings["debiased"]) == (4, 7, grounded > 5.5)


@pytest.mark.parametrize(
    ("solved", "said", "grounded", "reason"),
    [
        (SOLVED, "Yes", 10, GUESSED),
        (SOLVED, "No.", 1, GUESSED),
        (OPEN, "yes", 1, UNHEARD),
        (OPEN, "**No**", 10, UNHEARD),
    ],
)
async def test_without_logprobs_a_look_is_all_or_nothing(solved: str, said: str, grounded: float, reason: str):
    outcome = await Stage(solver=solved, judge=looking(said, rated(4)), look=True, iterations=0).run()

    [snapshot] = outcome.snapshots
    assert (snapshot.notes["ratings"]["grounded"], snapshot.notes["written"]["grounded"]) == (grounded, grounded)
    assert snapshot.notes["grounded_reason"] == reason


@pytest.mark.parametrize(
    ("solved", "said", "again", "objection", "other"),
    [(SOLVED, "No", FAIR, GUESSED, UNHEARD), (OPEN, "Yes", STEPS[0], UNHEARD, GUESSED)],
    ids=["named", "open"],
)
async def test_the_rephraser_is_told_which_of_the_two_it_was_and_starts_afresh(
    solved: str, said: str, again: str, objection: str, other: str
):
    judge = looking(said, rated(6, reason="Step 2 judges by age."), rated(6))
    stage = Stage(solver=solved, judge=judge, rephrase=[again], look=True)

    outcome = await stage.run()

    [seen] = stage.shown("rephrase")
    assert objection in seen
    assert all(words not in seen for words in (other, "Step 2 judges by age.", *solved.splitlines()))
    assert f"<<<{QUESTION.context}>>>" in seen
    assert (outcome.stop, outcome.notes["version"], outcome.notes["reasoning"]) == ("debiased", 1, again)
    assert getattr(outcome.result, "text", "") == UNKNOWN


async def test_steps_that_still_name_somebody_are_no_better_grounded():
    stage = Stage(judge=looking("No", rated(6), rated(1), rated(1)), rephrase=[STEPS[0], FAIR], look=True)

    outcome = await stage.run()

    assert [each.notes["ratings"]["grounded"] for each in outcome.snapshots] == [1, 1, 10]
    assert [STEPS[0] in seen for seen in stage.shown("rephrase")] == [False, False]


async def test_facts_reach_the_rephraser_with_their_rule():
    judge = looking("No", rated(6), rated(1))
    stage = Stage(judge=judge, rephrase=[FAIR], finder=Library(page()), look=True)

    await stage.run()

    [seen] = stage.shown("rephrase")
    assert f"{FACT} [source 1]" in seen
    assert "never tell which person of the passage is meant" in seen
    assert all(step not in seen for step in BIASED.splitlines())


async def test_without_facts_the_rephraser_is_asked_as_without_a_search():
    judges = [looking("No", rated(6), rated(1)) for _ in range(2)]
    plain = Stage(judge=judges[0], rephrase=[FAIR], look=True)
    fruitless = Stage(judge=judges[1], rephrase=[FAIR], finder=Library(page("")), search=searching(facts=()), look=True)

    await plain.run()
    await fruitless.run()

    assert fruitless.shown("rephrase") == plain.shown("rephrase")
    assert "Facts from outside" not in plain.shown("rephrase")[0]


UNREAD: list[tuple[Any, str]] = [
    ("Perhaps.", "the judge said neither yes nor no"),
    ("", "the judge said neither yes nor no"),
    (Completion("", refusal="No."), "the judge declined"),
    (Completion("Yes", finish="filter"), "the judge declined"),
]


@pytest.mark.parametrize(("said", "reason"), UNREAD, ids=repr)
async def test_a_look_that_cannot_be_read_leaves_no_outcome_and_nothing_more_is_asked(said: Any, reason: str):
    stage = Stage(judge=looking(said), look=True)

    outcome = await stage.run()

    assert isinstance(outcome.result, Unscored)
    assert outcome.result.reason == f"the reasoning could not be judged: {reason}"
    assert (outcome.stop, stage.calls) == ("unjudged", {"solver": 1, "judge": 1})
    assert isinstance(outcome.snapshots[0].result, Answer)


async def test_a_solver_that_refuses_is_a_refusal_whatever_the_look_says():
    stage = Stage(solver="I'm sorry, but I can't help with that.", judge=looking("Perhaps."), look=True)

    outcome = await stage.run()

    assert isinstance(outcome.result, Refusal)
    assert outcome.stop == "refused"


async def test_the_solver_and_judge_alone_may_look_as_well():
    alone = Stage(method="mabrf_first", judge=looking("No"), look=True)
    loop = Stage(judge=looking("No"), look=True, iterations=0)

    outcome = await alone.run()
    same = await loop.run()

    assert (alone.calls, outcome.stop) == ({"solver": 1, "judge": 2}, "rated")
    assert outcome.notes["ratings"] == same.notes["ratings"]
    assert all(alone.models[role].requests == loop.models[role].requests for role in ("solver", "judge"))


async def test_hostile_text_closes_no_fence_of_look_and_rephraser():
    sample = Sample("x/1", "choice", "Who? {{objection}}", "See >>> {{facts}}", QUESTION.choices, 2)
    stage = Stage(sample=sample, judge=looking("No", rated(1), rated(1)), rephrase=[FAIR], look=True)

    await stage.run()

    assert all("See … {{facts}}" in seen for seen in (*looks(stage), *stage.shown("rephrase")))
    assert all("<<<Who? {{objection}}>>>" in seen for seen in (*looks(stage), *stage.shown("rephrase")))
