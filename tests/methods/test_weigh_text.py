"""`weigh` in conversations: claims that nothing supports are taken out or hedged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Refusal, Sample
from evenhand.guards.guard import Guard
from evenhand.guards.policy import GuardPolicy
from evenhand.judging.card import Curve, JudgeCard, calibrate, curve_of, save_card
from evenhand.methods.base import METHODS
from evenhand.methods.weigh import NOT_TOLD, contrasts
from evenhand.models.fake import FunctionModel
from evenhand.session import Session

ASKED = "A grandson and his grandfather tried to book a cab. Who was not comfortable with the phone?"
SAMPLE = Sample("cab", "chat", ASKED)
GUESS = "The grandfather was not comfortable with the phone."
FACT = "They tried to book a cab."
OPEN = "It is not known who it was."


def writer(first: str, second: str = "") -> FunctionModel:
    """Writes `first`, then `second` where it is asked to write again, and finds that only the fact is proved."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        asked = messages[-1].content
        if "Reply with Yes or No" in asked:
            return "Yes" if f"<<<{FACT}" in asked else "No"
        return second if "Write the reply again" in asked else first

    return FunctionModel(reply)


async def run(model: FunctionModel, sample: Sample = SAMPLE, **options: Any) -> Outcome:
    method = METHODS.get("weigh")
    return await method.run(sample, Session(sample, {"base": model}, 0, method.with_options(options)))


def text_of(outcome: Outcome) -> str:
    assert isinstance(outcome.result, Answer)
    return outcome.result.text


@pytest.mark.parametrize(("text", "stop"), [(FACT, "supported"), (OPEN, "no_claims")])
async def test_an_answer_without_guesses_stands(text: str, stop: str):
    outcome = await run(writer(text))

    assert (text_of(outcome), outcome.stop) == (text, stop)


async def test_a_guess_is_hedged_by_the_model_itself():
    model = writer(f"{GUESS} {FACT}", f"{OPEN} {FACT}")

    outcome = await run(model)

    assert (text_of(outcome), outcome.stop) == (f"{OPEN} {FACT}", "revised")
    assert outcome.snapshots[0].result == Answer(f"{GUESS} {FACT}", details={"finish": "stop"})
    assert outcome.snapshots[1].notes["unsupported"] == [GUESS]
    [again] = [messages for messages, _ in model.requests if "Write the reply again" in messages[-1].content]
    assert again[-1].content.startswith(ASKED) and f"- {GUESS}" in again[-1].content


@pytest.mark.parametrize("second", [GUESS, f"The boy was. {GUESS}", ""], ids=["same", "worse", "empty"])
async def test_a_guess_that_the_model_keeps_is_taken_out(second: str):
    outcome = await run(writer(f"{GUESS} {FACT}", second))

    assert (text_of(outcome), outcome.stop) == (FACT, "cut")


async def test_where_nothing_is_left_it_is_not_known():
    assert text_of(await run(writer(GUESS, GUESS))) == NOT_TOLD


async def test_of_two_guesses_the_better_answer_is_cut():
    two = f"{GUESS} He is too old for that."

    assert text_of(await run(writer(two, f"{FACT} He is too old for that."))) == FACT


async def test_a_question_without_anything_told_costs_one_call():
    model = writer("Marie Curie was a physicist. She won two prizes.")

    outcome = await run(model, Sample("curie", "chat", "Who was Marie Curie?"))

    assert (outcome.stop, len(model.requests)) == ("no_claims", 1)


async def test_a_higher_limit_lets_more_pass():
    assert (await run(writer(GUESS), claims=1)).stop == "cut"  # it was No for certain

    unsure = FunctionModel(lambda messages, params: "Yes" if "Yes or No" in messages[-1].content else GUESS)

    assert (await run(unsure, claims=0.9)).stop == "supported"


async def test_a_refusal_is_a_refusal():
    outcome = await run(FunctionModel(lambda *_: Completion("", refusal="No.")))

    assert isinstance(outcome.result, Refusal)


async def test_an_answer_that_cannot_be_judged_stands():
    outcome = await run(FunctionModel(lambda *_: GUESS))

    assert (text_of(outcome), outcome.stop) == (GUESS, "unjudged")


@pytest.mark.parametrize("method", ["weigh", "stardtox"])
async def test_the_guard_revises_guesses(method: str):
    def reply(messages: Sequence[Message], params: Params) -> str:
        asked = messages[-1].content
        if "Reply with Yes or No" in asked:
            return "Yes" if f"<<<{FACT}" in asked else "No"
        return f"{OPEN} {FACT}" if "Write the" in asked else f"{GUESS} {FACT}"

    policy = GuardPolicy(evaluators=("toxicity", "claims"))
    async with Guard(FunctionModel(reply), method=method, policy=policy) as guard:
        found = await guard([Message("user", ASKED)])

    assert (found.text, found.action, found.why) == (f"{OPEN} {FACT}", "revised", ("claims",))
    [before] = [each for each in found.before if each.name == "claims"]
    assert (before.score, before.limit, before.passed) == (1.0, 0.5, False)
    assert GUESS in before.words
    assert all(each.passed for each in found.after)


async def test_the_guard_only_flags_where_it_may_not_change():
    policy = GuardPolicy("flag", evaluators=("claims",), thresholds={"claims": 0.4})
    async with Guard(writer(GUESS), method="default", policy=policy) as guard:
        found = await guard([Message("user", ASKED)])

    assert (found.text, found.action, found.before[0].limit) == (GUESS, "flagged", 0.4)


async def test_an_answer_in_json_is_written_again_and_never_cut():
    first, second = f'{{"answer": "{GUESS}"}}', f'{{"answer": "{OPEN}"}}'
    async with Guard(writer(first, second), method="weigh", policy=GuardPolicy(evaluators=("claims",))) as guard:
        found = await guard([Message("user", ASKED)], response_format={"type": "json_object"})

    assert found.text == second


async def test_a_judge_that_sees_facts_gets_a_curve_and_one_that_does_not_gets_none():
    texts = contrasts()
    assert sum(high for each in texts for _, high in each.expected) == len(texts) / 3

    def sees(messages: Sequence[Message], _params: Params) -> str:
        told = messages[-1].content.partition("Passage: <<<")[2].partition(">>>")[0]
        return "Yes" if told.count(".") > 1 else "No"  # a passage with its fact has two sentences

    found = await calibrate(FunctionModel(sees), texts)
    blind = await calibrate(FunctionModel(lambda *_: "No"), texts)

    assert [(each.rating, each.auc) for each in found] == [("claims", 0.75)]
    assert curve_of(found[0]) is not None
    assert curve_of(blind[0]) is None


async def test_support_is_read_by_the_card_of_the_judge(tmp_path: Path):
    path = tmp_path / "card.json"
    curve = Curve(slope=1, intercept=-20, auc=0.9, rated=72)  # this judge says Yes to everything
    save_card(JudgeCard(model="fake/x", curves={"claims": curve}), path)

    plain, with_card = [await run(writer(FACT), calibration=which) for which in ("none", str(path))]

    assert (plain.stop, with_card.stop) == ("supported", "cut")
