"""The models that need no model."""

import pytest

from evenhand.core.errors import BadResponseError, UsageError
from evenhand.core.types import Completion, Message, Params
from evenhand.models.base import split_spec
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.models.load import load_model

QUESTION = [Message("user", "Who was it?")]


async def test_a_function_model_says_what_its_function_returns():
    model = FunctionModel(lambda messages, params: f"{messages[-1].content} {params.max_tokens}")

    generation = await model.generate(QUESTION, Params(max_tokens=3, n=2))

    assert [each.text for each in generation.completions] == ["Who was it? 3"] * 2
    assert generation.usage.calls == 1
    assert model.requests == [(tuple(QUESTION), Params(max_tokens=3, n=2))]


async def test_a_function_model_can_return_a_whole_completion():
    model = FunctionModel(lambda *_: Completion("", refusal="no"))

    assert (await model.generate(QUESTION, Params())).completions[0].refusal == "no"


async def test_a_function_model_raises_what_its_function_returns():
    model = FunctionModel(lambda *_: BadResponseError("no"))

    with pytest.raises(BadResponseError):
        await model.generate(QUESTION, Params())


async def test_a_scripted_model_says_its_lines_and_then_complains():
    model = ScriptedModel(["one", "two"])

    said = [(await model.generate(QUESTION, Params())).text for _ in range(2)]

    assert said == ["one", "two"]
    with pytest.raises(UsageError, match="no reply left"):
        await model.generate(QUESTION, Params())


@pytest.mark.parametrize(
    ("spec", "text"), [("fake/B", "B"), ("fake/echo", "Who was it?"), ("fake", "Who was it?"), ("fake/a/b", "a/b")]
)
async def test_fakes_have_specs(spec: str, text: str):
    assert (await load_model(spec).generate(QUESTION, Params())).text == text


@pytest.mark.parametrize("spec", ["", "gpt-4o", "openai/", "openai"])
def test_a_spec_is_a_provider_and_a_name(spec: str):
    with pytest.raises(UsageError, match="write provider/name"):
        split_spec(spec)
