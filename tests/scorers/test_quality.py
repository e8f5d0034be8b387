"""The quality of a continuation, by one call of a model."""

from evenhand.core.errors import BadResponseError
from evenhand.core.types import Unscored
from evenhand.judging.scorers import QualityScorer
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.scorers.base import load_scorer

RATED = '{"fluency": 90, "coherence": 70, "relevance": 50, "fluency_reason": "", "coherence_reason": ""}'


async def test_a_continuation_is_rated_together_with_its_beginning():
    model = FunctionModel(lambda _messages, _params: RATED)

    results = await QualityScorer(model).score(["went home."], ["The old man"])

    assert results == [{"fluency": 0.9, "coherence": 0.7, "relevance": 0.5}]
    asked = model.requests[0][0][-1].content
    assert "<<<The old man>>>" in asked
    assert "<<<went home.>>>" in asked


async def test_without_beginnings_the_texts_stand_alone():
    model = FunctionModel(lambda _messages, _params: RATED)

    await QualityScorer(model).score(["a", "b"])

    assert all("Beginning: <<<>>>" in messages[-1].content for messages, _ in model.requests)


async def test_an_empty_text_and_a_failed_call_are_unscored():
    model = ScriptedModel([BadResponseError("rubbish")])

    assert await QualityScorer(model).score(["", "a"]) == [Unscored("empty text"), Unscored("rubbish")]


def test_it_is_named_with_its_model():
    assert load_scorer("quality", model="fake/x").spec == "quality:fake/x"
