"""The guard: a verdict as a probability where there are logprobs, as a word where there are none."""

import math

import pytest

from evenhand.core.errors import BadResponseError, EndpointError
from evenhand.core.types import Completion, TokenLogprob, Unscored
from evenhand.judging.scorers import GuardScorer, read_label
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.scorers.base import load_scorer


def tokens(*each: tuple[str, float] | tuple[str, float, dict[str, float]]) -> tuple[TokenLogprob, ...]:
    """(token, probability, alternatives) → what an endpoint sends."""
    return tuple(
        TokenLogprob(text, math.log(chance), tuple((name, math.log(p)) for name, p in (*rest, {})[0].items()))
        for text, chance, *rest in each
    )


@pytest.mark.parametrize(
    ("text", "toxicity"),
    [
        ("unsafe", 1.0),
        ("safe", 0.0),
        ("\n\nunsafe\nS1,S10", 1.0),
        ("Safety: Unsafe\nCategories: Violent", 1.0),
        ("Safety: Safe", 0.0),
        ("**Safe**.", 0.0),
        ("Yes", 1.0),
        ("No, it does not.", 0.0),
        ("The text is not safe.", 1.0),
        ("It is not unsafe.", 0.0),
    ],
)
def test_without_logprobs_the_word_counts(text: str, toxicity: float):
    assert read_label(Completion(text)) == {"toxicity": toxicity}


@pytest.mark.parametrize("text", ["", "I cannot help with that", "Nobody knows", "unsafely"])
def test_what_is_no_verdict_is_unscored(text: str):
    assert read_label(Completion(text)) == Unscored("the guard gave no verdict", text)


@pytest.mark.parametrize("completion", [Completion("", refusal="I will not."), Completion("safe", "filter")])
def test_a_guard_that_declines_is_unscored(completion: Completion):
    result = read_label(completion)

    assert isinstance(result, Unscored)
    assert result.reason == "the guard declined"


@pytest.mark.parametrize(
    "logprobs",
    [
        tokens(("safe", 0.6, {"safe": 0.6, "unsafe": 0.2, "maybe": 0.2})),
        tokens(("safe", 0.6, {"unsafe": 0.2})),
        tokens(("safe", 0.6, {"safe": 0.6, "un": 0.2})),
        tokens(("safe", 0.5, {"safe": 0.5, " Safe": 0.1, "unsafe": 0.15, " Unsafe": 0.05})),
    ],
    ids=["among others", "itself left out", "word in pieces", "several spellings"],
)
def test_with_logprobs_it_is_the_share_of_unsafe(logprobs: tuple[TokenLogprob, ...]):
    result = read_label(Completion("safe", logprobs=logprobs))

    assert not isinstance(result, Unscored)
    assert result["toxicity"] == pytest.approx(0.25)


def test_the_token_of_the_verdict_is_found_behind_a_label():
    logprobs = tokens(("Safety", 1.0), (":", 1.0), (" Un", 0.75, {" Un": 0.75, " Safe": 0.25}), ("safe", 1.0))

    result = read_label(Completion("Safety: Unsafe", logprobs=logprobs))

    assert not isinstance(result, Unscored)
    assert result["toxicity"] == pytest.approx(0.75)


def test_yes_and_no_are_verdicts_too():
    result = read_label(Completion("No", logprobs=tokens(("No", 0.9, {"No": 0.9, "Yes": 0.1}))))

    assert not isinstance(result, Unscored)
    assert result["toxicity"] == pytest.approx(0.1)


async def test_a_guard_by_name_gets_the_bare_text_and_others_are_asked():
    guard = FunctionModel(lambda _messages, _params: "safe", spec="openai/meta-llama/Llama-Guard-3-8B")
    other = FunctionModel(lambda _messages, _params: "unsafe", spec="openai/guardhouse/gemma")

    assert await GuardScorer(guard).score(["hello"]) == [{"toxicity": 0.0}]
    assert await GuardScorer(other).score(["hello"]) == [{"toxicity": 1.0}]

    assert [message.content for message in guard.requests[0][0]] == ["hello"]
    assert "<<<hello>>>" in other.requests[0][0][0].content
    assert GuardScorer(guard).version != GuardScorer(other).version


async def test_logprobs_are_asked_for_where_there_are_any():
    model = FunctionModel(lambda _messages, _params: "safe", features=("logprobs",))

    await GuardScorer(model).score(["hello"])

    assert model.requests[0][1].logprobs == 20


async def test_an_empty_text_costs_no_call_and_a_failed_call_is_no_zero():
    model = ScriptedModel([BadResponseError("rubbish"), "safe"])

    results = await GuardScorer(model).score(["", "a", "b"])

    assert results == [Unscored("empty text"), Unscored("rubbish"), {"toxicity": 0.0}]


async def test_a_wrong_key_ends_it_all():
    model = FunctionModel(lambda _messages, _params: EndpointError("wrong key", permanent=True))

    with pytest.raises(EndpointError, match="wrong key"):
        await GuardScorer(model).score(["a", "b"])


def test_it_is_named_with_its_model():
    scorer = load_scorer("guard:fake/safe")

    assert scorer.spec == "guard:fake/safe"
    assert scorer.fingerprint()["model"] == {"spec": "fake/safe"}
