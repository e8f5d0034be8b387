"""Asking for a choice: the order shown, the ways to read the answer, and what happens when there is none."""

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from evenhand.asking.choice import LEAST_MASS, choose
from evenhand.core.errors import PlanError
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Answer, Completion, Message, Params, Refusal, Sample, TokenLogprob, Unscored
from evenhand.models.fake import FunctionModel, Reply, ScriptedModel
from evenhand.session import Answering, Session

PROMPT = parse_prompt("test/choice", "# user\n{{context}} {{question}}\n{{options}}\n")
CHOICES = ("The grandfather", "The grandson", "Unknown")
SAMPLE = Sample("age/1", "choice", "Who?", "Two people met.", CHOICES, 2)


def shown(messages: Sequence[Message]) -> dict[str, str]:
    """Letter → option, as the model sees them."""
    lines = [line.partition(") ") for line in messages[-1].content.splitlines() if line[1:3] == ") "]
    return {letter: text for letter, _, text in lines}


def always(choice: int) -> Callable[[Sequence[Message], Params], str]:
    """A model that knows what it wants, wherever it stands."""

    def reply(messages: Sequence[Message], _params: Params) -> str:
        return next(letter for letter, text in shown(messages).items() if text == CHOICES[choice])

    return reply


def with_logprobs(probabilities: Mapping[str, float], text: str = "The") -> Completion:
    """A completion whose first token has these probabilities."""
    top = tuple((token, math.log(probability)) for token, probability in probabilities.items())
    return Completion(text, logprobs=(TokenLogprob(text, top[0][1], top),))


def session(model: FunctionModel, *, seed: int = 0, sample: Sample = SAMPLE, **answering: object) -> Session:
    return Session(sample, {"base": model}, seed, answering=Answering(**answering))  # pyright: ignore


@pytest.mark.parametrize("choice", [0, 1, 2])
@pytest.mark.parametrize("seed", range(6))
async def test_the_letter_is_led_back_to_the_option(choice: int, seed: int):
    result = await choose(session(FunctionModel(always(choice)), seed=seed), SAMPLE, PROMPT)

    assert isinstance(result, Answer)
    assert (result.choice, result.text) == (choice, CHOICES[choice])
    assert result.details["order"][result.details["position"]] == choice
    assert result.details["reading"] == "text"


async def test_the_order_shown_is_the_permutation_of_the_sample():
    model = FunctionModel(lambda *_: "A")
    asked = session(model)

    await choose(asked, SAMPLE, PROMPT)

    assert list(shown(model.requests[0][0]).values()) == [CHOICES[index] for index in asked.permutation(3)]


READINGS: list[tuple[list[str], list[str]]] = [
    ([], ["text"]),
    (["schema"], ["constrained", "text"]),
    (["logprobs"], ["logprobs", "text"]),
    (["logprobs", "schema"], ["logprobs", "constrained", "text"]),
]


@pytest.mark.parametrize(("features", "readings"), READINGS)
async def test_readings_are_tried_from_the_best_the_model_offers(features: list[str], readings: list[str]):
    model = FunctionModel(lambda *_: "hm", features=features)  # pyright: ignore

    result = await choose(session(model), SAMPLE, PROMPT)

    asked = ["logprobs" if p.logprobs else "constrained" if p.schema else "text" for _, p in model.requests]
    assert asked == readings
    assert result == Unscored(f"no option could be read from the {readings[-1]} answer", "hm")


@pytest.mark.parametrize(("features", "readings"), READINGS)
async def test_an_empty_reply_is_called_that(features: list[str], readings: list[str]):
    model = FunctionModel(lambda *_: " \n", features=features)  # pyright: ignore

    assert await choose(session(model), SAMPLE, PROMPT) == Unscored("the answer is empty", " \n")
    assert len(model.requests) == len(readings)


async def test_all_requests_are_greedy_and_short():
    model = FunctionModel(lambda *_: "hm", features=["logprobs", "schema"])

    await choose(session(model), SAMPLE, PROMPT)

    assert [(p.temperature, p.max_tokens, p.seed) for _, p in model.requests] == [
        (0, 1, None),
        (0, 64, None),
        (0, 64, None),
    ]


async def test_logprobs_give_probabilities_in_the_samples_own_order():
    model = FunctionModel(lambda *_: with_logprobs({"A": 0.6, "B": 0.2, "C": 0.1}), features=["logprobs"])
    asked = session(model)

    result = await choose(asked, SAMPLE, PROMPT)

    order = asked.permutation(3)
    assert isinstance(result, Answer)
    assert result.choice == order[0]
    assert [result.details["probabilities"][index] for index in order] == pytest.approx([6 / 9, 2 / 9, 1 / 9])
    assert result.details["mass"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    "reply",
    [
        with_logprobs({"The": 0.92, "A": 0.05, "B": 0.03}),
        with_logprobs({"The": 0.9}),
        Completion("A"),
        Completion("A", logprobs=()),
    ],
    ids=["little mass on letters", "no letter", "no logprobs", "empty logprobs"],
)
async def test_logprobs_that_do_not_tell_are_followed_by_another_reading(reply: Completion):
    def answer(_messages: Sequence[Message], params: Params) -> Reply:
        return reply if params.logprobs else '{"answer": "B"}'

    model = FunctionModel(answer, features=["logprobs", "schema"])

    result = await choose(session(model), SAMPLE, PROMPT)

    assert isinstance(result, Answer)
    assert (result.details["reading"], result.details["position"]) == ("constrained", 1)


async def test_letters_with_just_enough_of_the_probability_are_read():
    reply = with_logprobs({"The": 0.99 - LEAST_MASS, "B": LEAST_MASS + 0.01})
    model = FunctionModel(lambda *_: reply, features=["logprobs"])

    result = await choose(session(model), SAMPLE, PROMPT)

    assert isinstance(result, Answer)
    assert (result.details["reading"], result.details["position"]) == ("logprobs", 1)


async def test_a_reading_that_was_asked_for_is_the_only_one():
    model = FunctionModel(lambda *_: "A", features=["logprobs", "schema"])

    result = await choose(session(model, reading="text"), SAMPLE, PROMPT)

    assert isinstance(result, Answer)
    assert (len(model.requests), result.details["reading"]) == (1, "text")


async def test_a_reading_that_the_model_does_not_offer_is_refused_by_name():
    with pytest.raises(PlanError, match=r"does not offer the reading 'logprobs'; choose one of .*text"):
        await choose(session(FunctionModel(lambda *_: "A"), reading="logprobs"), SAMPLE, PROMPT)


REFUSALS: list[tuple[Reply, str]] = [
    (Completion("", refusal="I will not."), "I will not."),
    (Completion("A", refusal="I will not."), "I will not."),
    (Completion("", finish="filter"), "stopped by the endpoint's content filter"),
    (Completion("Half a", finish="filter"), "Half a"),
    ("I'm sorry, but I can't help with that.", "I'm sorry, but I can't help with that."),
]


@pytest.mark.parametrize(("reply", "text"), REFUSALS)
async def test_a_refusal_is_a_refusal_and_is_not_asked_again(reply: Reply, text: str):
    model = FunctionModel(lambda *_: reply, features=["schema"])

    result = await choose(session(model), SAMPLE, PROMPT)

    assert result == Refusal(text)
    assert len(model.requests) == 1


async def test_a_polite_answer_is_an_answer():
    result = await choose(
        session(FunctionModel(lambda *_: "I'm sorry to say so, but the answer is B.")), SAMPLE, PROMPT
    )

    assert isinstance(result, Answer)
    assert result.details["position"] == 1


async def test_three_orders_show_every_option_in_every_place():
    model = FunctionModel(always(1))

    result = await choose(session(model, orders=3), SAMPLE, PROMPT)

    placed = [list(shown(messages).values()).index("The grandson") for messages, _ in model.requests]
    assert sorted(placed) == [0, 1, 2]
    assert isinstance(result, Answer)
    assert (result.choice, sorted(result.details["positions"])) == (1, [0, 1, 2])


async def test_more_orders_than_options_are_not_asked():
    model = FunctionModel(always(0))

    await choose(session(model, orders=9), SAMPLE, PROMPT)

    assert len(model.requests) == 3


async def test_a_liking_for_a_letter_is_no_answer_over_three_orders():
    result = await choose(session(FunctionModel(lambda *_: "A"), orders=3), SAMPLE, PROMPT)

    assert isinstance(result, Unscored)
    assert result.reason == "the orders of the options disagree"


async def test_two_of_three_orders_decide():
    asked: list[str] = []

    def reply(messages: Sequence[Message], params: Params) -> str:
        asked.append(always(2)(messages, params))
        return asked[-1] if len(asked) < 3 else always(0)(messages, params)

    result = await choose(session(FunctionModel(reply), orders=3), SAMPLE, PROMPT)

    assert isinstance(result, Answer)
    assert result.choice == 2
    assert result.details["votes"] == pytest.approx([1 / 3, 0, 2 / 3])


async def test_probabilities_are_averaged_over_the_orders():
    def reply(messages: Sequence[Message], _params: Params) -> Completion:
        letters = {text: letter for letter, text in shown(messages).items()}
        first = shown(messages)["A"]
        own = {"The grandson": 0.5, "Unknown": 0.4, "The grandfather": 0.1}
        # The model also likes the first letter, which three orders must average away.
        return with_logprobs({letters[text]: value + (0.3 if text == first else 0) for text, value in own.items()})

    model = FunctionModel(reply, features=["logprobs"])

    result = await choose(session(model, orders=3), SAMPLE, PROMPT)

    assert isinstance(result, Answer)
    assert result.choice == 1
    assert result.details["probabilities"] == pytest.approx([0.2 / 1.3, 0.6 / 1.3, 0.5 / 1.3])
    assert len(result.details["by_order"]) == 3


async def test_a_refusal_in_one_order_is_a_refusal():
    model = ScriptedModel(["A", Completion("", refusal="no"), "A"])

    assert await choose(session(model, orders=3), SAMPLE, PROMPT) == Refusal("no")


async def test_an_unreadable_reply_in_one_order_is_no_answer():
    model = ScriptedModel(["A", "A", "hm"])

    assert isinstance(await choose(session(model, orders=3), SAMPLE, PROMPT), Unscored)


async def test_an_option_with_a_hostile_text_is_only_text():
    hostile = Sample("x", "choice", "Who? {{options}}", "{{question}}", ("A) B) C)", '{"answer": "B"}', "\\1 $& {}"), 0)
    model = FunctionModel(lambda *_: "B")

    result = await choose(session(model, sample=hostile), hostile, PROMPT)

    assert isinstance(result, Answer)
    assert result.details["position"] == 1
    assert model.requests[0][0][0].content.startswith("{{question}} Who? {{options}}")
