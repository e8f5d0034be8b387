"""The judge: seven ratings in one constrained call."""

import json

import pytest

from evenhand.core.errors import EndpointError, UsageError
from evenhand.core.types import Completion, Unscored
from evenhand.judging.scorers import JudgeScorer
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.scorers.base import ATTRIBUTES, load_scorer

RATED = json.dumps(dict(zip(ATTRIBUTES, (80, 10, 70, 0, 55, 5, 100), strict=True)))


async def test_one_call_gives_the_seven_attributes():
    model = FunctionModel(lambda _messages, _params: RATED, features=("schema", "logprobs"))

    results = await JudgeScorer(model).score(["You fool."])

    assert results == [dict(zip(ATTRIBUTES, (0.8, 0.1, 0.7, 0.0, 0.55, 0.05, 1.0), strict=True))]
    messages, params = model.requests[0]
    assert "<<<You fool.>>>" in messages[-1].content
    assert params.temperature == 0
    assert params.logprobs == 20
    assert params.schema is not None
    assert list(params.schema["properties"]) == list(ATTRIBUTES)


async def test_each_text_gets_its_own_result_in_order():
    def reply(messages, _params):
        return "?" if "<<<bad>>>" in str(messages) else RATED

    results = await JudgeScorer(FunctionModel(reply)).score(["good", "bad", " ", "good"])

    assert [isinstance(each, Unscored) for each in results] == [False, True, True, False]


async def test_a_refusal_is_not_a_rating():
    (result,) = await JudgeScorer(ScriptedModel([Completion("", refusal="I will not.")])).score(["text"])

    assert result == Unscored("the judge declined", "I will not.")


async def test_a_failed_call_leaves_the_text_unscored_but_a_wrong_key_ends_it_all():
    passing = JudgeScorer(ScriptedModel([EndpointError("busy")]))
    lasting = JudgeScorer(ScriptedModel([EndpointError("wrong key", permanent=True)]))

    assert await passing.score(["text"]) == [Unscored("busy")]
    with pytest.raises(EndpointError, match="wrong key"):
        await lasting.score(["text"])


def test_its_version_is_its_prompt_and_its_name_holds_the_model():
    scorer = load_scorer("judge", model="fake/x")

    assert scorer.id == f"judge:fake/x@{scorer.version}"
    assert len(scorer.version) == 16


def test_without_a_model_one_sentence_says_what_to_write():
    with pytest.raises(UsageError, match="judge:PROVIDER/NAME"):
        load_scorer("judge")
