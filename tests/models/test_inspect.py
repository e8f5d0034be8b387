"""Inspect's providers, played by its own mock provider."""

from collections.abc import Callable
from typing import Any

import pytest

from evenhand.core.errors import BadResponseError, MissingExtraError, ModelError, UsageError
from evenhand.core.types import Message, Params
from evenhand.models.base import ModelOptions
from evenhand.models.inspect import InspectModel

inspect_model: Any = pytest.importorskip("inspect_ai.model", reason="needs pip install 'evenhand[inspect]'")
# Inspect's own use of tenacity, not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated")
QUESTION = [
    Message("system", "Be brief."),
    Message("user", "Hello?"),
    Message("assistant", "Yes?"),
    Message("user", "Hi"),
]


class Provider:
    """Answers with the outputs given, and keeps what it was asked."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)
        self.messages: list[list[tuple[str, str]]] = []
        self.configs: list[Any] = []

    def __call__(self, messages: list[Any], tools: object, choice: object, config: Any) -> Any:
        self.messages.append([(message.role, message.text) for message in messages])
        self.configs.append(config)
        output = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        if isinstance(output, Exception):
            raise output
        # Without a usage, the mock provider would download a tokenizer to count with.
        output.usage = output.usage or inspect_model.ModelUsage(input_tokens=3, output_tokens=1)
        return output


def said(text: str, stop_reason: str = "stop") -> Any:
    return inspect_model.ModelOutput.from_content("mockllm", text, stop_reason=stop_reason)


def model_with(provider: Callable[..., Any], **options: Any) -> InspectModel:
    return InspectModel(
        "mockllm/model", ModelOptions(retries=0, extra={"model_args": {"custom_outputs": provider}}, **options)
    )


async def test_messages_and_parameters_arrive() -> None:
    provider = Provider(said("ok"))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    params = Params(0.5, 0.9, 20, 7, ("END",), logprobs=3, schema=schema)
    async with model_with(provider) as model:
        generation = await model.generate(QUESTION, params)
    assert generation.text == "ok"
    assert generation.model == "inspect/mockllm/model"
    assert provider.messages == [[(message.role, message.content) for message in QUESTION]]
    (config,) = provider.configs
    assert (config.temperature, config.top_p, config.max_tokens, config.seed) == (0.5, 0.9, 20, 7)
    assert config.stop_seqs == ["END"]
    assert config.logprobs is True
    assert config.top_logprobs == 3
    assert config.response_schema.json_schema.model_dump(exclude_none=True)["required"] == ["a"]
    assert config.response_schema.strict


async def test_what_is_not_asked_for_is_left_to_the_provider() -> None:
    provider = Provider(said("ok"))
    async with model_with(provider) as model:
        await model.generate(QUESTION, Params())
    asked = provider.configs[0].model_dump(exclude_none=True)
    assert not asked.keys() & {"temperature", "seed", "stop_seqs", "logprobs", "num_choices", "response_schema"}


async def test_usage_counts_cached_input() -> None:
    output = said("ok")
    output.usage = inspect_model.ModelUsage(input_tokens=10, output_tokens=4, input_tokens_cache_read=5)
    async with model_with(Provider(output)) as model:
        usage = (await model.generate(QUESTION, Params())).usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (1, 15, 4)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("max_tokens", "length"),
        ("model_length", "length"),
        ("content_filter", "filter"),
        ("unknown", "other"),
    ],
)
async def test_stop_reasons(reason: str, finish: str) -> None:
    async with model_with(Provider(said("ok", reason))) as model:
        assert (await model.generate(QUESTION, Params())).completions[0].finish == finish


async def test_a_refusal_is_marked() -> None:
    output = said("")
    output.choices[0].message.content = [inspect_model.ContentText(text="I cannot help.", refusal=True)]
    async with model_with(Provider(output)) as model:
        (completion,) = (await model.generate(QUESTION, Params())).completions
    assert completion.refusal == "I cannot help."


async def test_logprobs_are_taken_over() -> None:
    output = said("A")
    top = [inspect_model.TopLogprob(token="A", logprob=-0.1), inspect_model.TopLogprob(token="B", logprob=-2.4)]
    token = inspect_model.Logprob(token="A", logprob=-0.1, top_logprobs=top)
    output.choices[0].logprobs = inspect_model.Logprobs(content=[token])
    async with model_with(Provider(output)) as model:
        (completion,) = (await model.generate(QUESTION, Params(logprobs=2))).completions
    assert completion.logprobs is not None
    assert completion.logprobs[0].top == (("A", -0.1), ("B", -2.4))


async def test_n_is_made_up_of_single_requests_where_the_provider_gives_one() -> None:
    provider = Provider(said("one"), said("two"), said("three"))
    async with model_with(provider) as model:
        generation = await model.generate(QUESTION, Params(n=3, seed=5))
    assert [completion.text for completion in generation.completions] == ["one", "two", "three"]
    assert [(config.num_choices, config.seed) for config in provider.configs] == [(3, 5), (None, 6), (None, 7)]
    assert generation.usage.calls == 3


async def test_n_choices_at_once_are_used() -> None:
    output = said("one")
    output.choices.append(said("two").choices[0])
    provider = Provider(output)
    async with model_with(provider) as model:
        generation = await model.generate(QUESTION, Params(n=2))
    assert [completion.text for completion in generation.completions] == ["one", "two"]
    assert len(provider.configs) == 1


async def test_a_provider_error_is_a_model_error_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_API_KEY", "very-secret-value")
    fault = RuntimeError("quota exceeded for very-secret-value and sk-abcdefghijklmnop1234 (Bearer zzz.yyy)")
    async with model_with(Provider(fault)) as model:
        with pytest.raises(ModelError, match="quota exceeded") as caught:
            await model.generate(QUESTION, Params())
    assert "very-secret" not in str(caught.value)
    assert "sk-abc" not in str(caught.value)
    assert "zzz" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_an_error_inside_the_output_is_a_model_error() -> None:
    output = inspect_model.ModelOutput(model="mockllm", error="overloaded")
    async with model_with(Provider(output)) as model:
        with pytest.raises(ModelError, match="overloaded"):
            await model.generate(QUESTION, Params())


async def test_no_choices_is_a_bad_response() -> None:
    async with model_with(Provider(inspect_model.ModelOutput(model="mockllm"))) as model:
        with pytest.raises(BadResponseError):
            await model.generate(QUESTION, Params())


async def test_a_schema_that_inspect_cannot_express_is_refused() -> None:
    async with model_with(Provider(said("ok"))) as model:
        with pytest.raises(UsageError, match=r"no \$ref"):
            await model.generate(QUESTION, Params(schema={"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}))


def test_a_missing_key_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        InspectModel("openai/gpt-4o-mini", ModelOptions())
    assert "[bold]" not in str(caught.value)


@pytest.mark.parametrize("name", ["mockllm", "nobody/model"])
def test_an_unknown_provider_is_one_sentence(name: str) -> None:
    with pytest.raises(UsageError):
        InspectModel(name, ModelOptions())


def test_features_follow_the_provider() -> None:
    from evenhand.models.inspect import _FEATURES

    assert InspectModel("mockllm/model", ModelOptions()).features == frozenset()
    assert "openai" in _FEATURES["logprobs"]


def test_the_fingerprint_names_the_version() -> None:
    fingerprint = InspectModel("mockllm/model", ModelOptions()).fingerprint()
    assert fingerprint["spec"] == "inspect/mockllm/model"
    assert fingerprint["engine"].startswith("inspect_ai 0.")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "[inspect]'" in str(InspectModel.unavailable())
    with pytest.raises(MissingExtraError):
        InspectModel("mockllm/model", ModelOptions())
