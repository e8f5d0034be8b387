"""Yes or no: the odds of the two words where they are to be had, else the word that is written."""

import math

import pytest

from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Completion, Params, Sample, TokenLogprob, Unscored
from evenhand.judging.judge import yes_probability
from evenhand.models.base import Feature
from evenhand.models.fake import FunctionModel, Reply, ScriptedModel
from evenhand.session import Session

PROMPT = parse_prompt("test/rain", "# user\nDoes it rain? Reply with Yes or No.")


async def ask(model: FunctionModel) -> float | Unscored:
    session = Session(Sample("s", "chat", "Rain?"), {"base": model})
    return await yes_probability(session, PROMPT, PROMPT.render(), agent="judge", role="judge")


def odds(said: str, **alternatives: float) -> Completion:
    top = tuple((text, math.log(chance)) for text, chance in alternatives.items())
    return Completion(said, logprobs=(TokenLogprob(said, dict(top).get(said, -9.0), top),))


def saying(reply: Reply, *features: Feature) -> FunctionModel:
    return FunctionModel(lambda _messages, _params: reply, features=features)


def scored(*replies: Reply) -> FunctionModel:
    model = ScriptedModel(replies)
    model.features = frozenset[Feature]({"logprobs"})
    return model


ODDS: list[tuple[dict[str, float], float]] = [
    ({"Yes": 0.6, "No": 0.2}, 0.75),
    ({"No": 0.8, "Yes": 0.2}, 0.2),
    ({"Yes": 0.3, " yes": 0.2, "YES": 0.1, "No": 0.1, " no\n": 0.1}, 0.75),
    ({"Yes": 0.6, "Maybe": 0.2, "Not": 0.1, "No": 0.1}, 6 / 7),
    ({"No": 0.9, "It": 0.1}, 0.0),
    ({"Yes": 0.9, "It": 0.1}, 1.0),
    ({"No": 0.9, "It": 0.03, "The": 0.01}, 0.01 / 0.91),  # yes is not listed: no likelier than the last that is
    ({"Yes": 0.9, "It": 0.09, "The": 0.005}, 0.9 / 0.905),
    ({"No": 0.9, "It": 0.097}, 0.003 / 0.903),  # nor than all that is left
]


@pytest.mark.parametrize(("alternatives", "expected"), ODDS, ids=str)
async def test_yes_is_as_likely_as_its_share_of_yes_and_no(alternatives: dict[str, float], expected: float):
    model = scored(odds(next(iter(alternatives)), **alternatives))

    assert await ask(model) == pytest.approx(expected)
    assert len(model.requests) == 1


async def test_a_word_without_alternatives_stands_for_itself():
    assert await ask(scored(Completion("Yes", logprobs=(TokenLogprob("Yes", -0.1),)))) == 1


async def test_the_odds_are_asked_for_with_one_greedy_word():
    model = scored(odds("Yes", Yes=0.9, No=0.1))

    await ask(model)

    [(_, params)] = model.requests
    assert params == Params(temperature=0, max_tokens=1, logprobs=20)


NO_ODDS: list[Completion] = [
    Completion("The", logprobs=()),
    Completion("The"),
    odds("The", The=0.9, It=0.1),
    Completion("", refusal="No."),
]


@pytest.mark.parametrize("first", NO_ODDS, ids=repr)
async def test_a_model_without_odds_for_either_word_is_asked_to_write_it(first: Completion):
    model = scored(first, "Yes")

    assert await ask(model) == 1
    assert [params.logprobs for _, params in model.requests] == [20, 0]


WRITTEN = {
    "Yes": 1,
    "No": 0,
    "yes.": 1,
    "**No**": 0,
    '"Yes"': 1,
    "NO": 0,
    " \nYes\n": 1,
    "No, it does not say so.": 0,
    "Yes: the second man.": 1,
}


@pytest.mark.parametrize(("text", "expected"), WRITTEN.items())
async def test_without_logprobs_the_written_word_counts(text: str, expected: float):
    model = saying(text)

    assert await ask(model) == expected
    assert len(model.requests) == 1


@pytest.mark.parametrize("text", ["", "Maybe", "Nope", "Yesterday", "Not sure", "It is not said.", "The answer: no"])
async def test_neither_yes_nor_no_is_no_opinion(text: str):
    assert await ask(saying(text)) == Unscored("the judge said neither yes nor no", text)


@pytest.mark.parametrize("reply", [Completion("", refusal="No."), Completion("No", finish="filter")], ids=repr)
async def test_a_refusal_is_no_opinion_whatever_it_says(reply: Completion):
    found = await ask(saying(reply))

    assert isinstance(found, Unscored)
    assert (found.reason, found.raw) == ("the judge declined", "No." if reply.refusal else "No")


@pytest.mark.parametrize(("features", "constrained"), [(("schema",), True), ((), False)])
async def test_the_two_words_are_forced_where_the_model_allows_it(features: tuple[Feature, ...], constrained: bool):
    model = saying('"No"', *features)

    assert await ask(model) == 0
    [(_, params)] = model.requests
    assert (params.schema is not None) is constrained
    assert params.temperature == 0
