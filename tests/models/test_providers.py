"""Anthropic's and Gemini's own formats against real servers: what is sent, and what is read from the reply."""

from typing import Any

import pytest

from evenhand.core.errors import EndpointError, UsageError
from evenhand.core.types import Completion, Message, Params
from evenhand.models.base import Model, ModelOptions
from evenhand.models.load import load_model
from support.fixtures import Serve
from support.server import Body, ChatServer, Reply, reply_with

QUESTION = [Message("system", "Be brief."), Message("user", "Who?"), Message("assistant", "I"), Message("user", "So?")]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}


def anthropic(*blocks: Body, stop: str = "end_turn") -> Body:
    content = list(blocks) or [{"type": "text", "text": "B"}]
    usage = {"input_tokens": 20, "cache_read_input_tokens": 3, "output_tokens": 5}
    return {"type": "message", "model": "claude-x-1", "content": content, "stop_reason": stop, "usage": usage}


def gemini(text: str = "B", finish: str = "STOP", **part: Any) -> Body:
    parts = [{"text": "hm", "thought": True}, {"text": text, **part}]
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-x-001"}


def loaded(provider: str, server: ChatServer, **extra: Any) -> Model:
    return load_model(f"{provider}/test", ModelOptions(base_url=server.url, retries=0, extra=extra))


async def test_anthropic_gets_its_own_form(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    server = await serve(reply_with(anthropic()))
    params = Params(temperature=1.7, top_p=0.9, max_tokens=7, seed=1, stop=("\n",), schema=SCHEMA)

    async with loaded("anthropic", server) as model:
        found = await model.generate(QUESTION, params)

    seen = server.requests[0]
    assert (seen.path, seen.headers["x-api-key"]) == ("/v1/messages", "sk-ant")
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in seen.headers
    assert seen.body == {
        "model": "test",
        "max_tokens": 7,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": "I"},
            {"role": "user", "content": "So?"},
        ],
        "temperature": 1.0,
        "top_p": 0.9,
        "stop_sequences": ["\n"],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }
    assert found.completions == (Completion("B"),)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.fingerprint) == (23, 5, "claude-x-1")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (anthropic(stop="max_tokens"), Completion("B", "length")),
        (anthropic({"type": "text", "text": ""}, stop="refusal"), Completion("", "filter")),
        (
            anthropic({"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "B"}),
            Completion("B", thought="hm"),
        ),
    ],
)
async def test_anthropics_reasons_to_stop_and_thoughts_are_read(serve: Serve, reply: Body, expected: Completion):
    server = await serve(reply_with(reply))

    async with loaded("anthropic", server) as model:
        found = await model.generate(QUESTION, Params(max_tokens=64, max_tokens_exact=True))

    assert found.completions == (expected,)


async def test_several_answers_of_anthropic_are_several_requests(serve: Serve):
    server = await serve(reply_with(anthropic()))

    async with loaded("anthropic", server) as model:
        found = await model.generate(QUESTION, Params(n=3))

    assert (len(found.completions), found.usage.calls, len(server.requests)) == (3, 3, 3)


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("anthropic", "output_config: Extra inputs are not permitted"),
        ("gemini", "Invalid JSON payload received. Unknown name \"responseJsonSchema\" at 'generation_config'"),
    ],
)
async def test_a_schema_that_the_model_does_not_know_is_asked_for_in_words(serve: Serve, provider: str, said: str):
    def answer(body: Body) -> Reply:
        if "output_config" in body or "responseJsonSchema" in body.get("generationConfig", {}):
            return reply_with({"type": "error", "error": {"type": "invalid_request_error", "message": said}}, 400)
        return reply_with(anthropic() if provider == "anthropic" else gemini())

    server = await serve(answer=answer)

    async with loaded(provider, server) as model:
        assert (await model.generate(QUESTION, Params(schema=SCHEMA))).text == "B"
        assert "schema" not in model.features

    assert "valid under this schema" in str(server.bodies[-1])


async def test_gemini_gets_its_own_form(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEMINI_API_KEY", "g-key")
    server = await serve(reply_with(gemini()))

    async with loaded("gemini", server) as model:
        found = await model.generate(
            QUESTION, Params(temperature=0.0, max_tokens=7, seed=3, stop=("x",), schema=SCHEMA)
        )

    seen = server.requests[0]
    assert (seen.path, seen.headers["x-goog-api-key"], seen.query) == (
        "/v1/models/test:generateContent",
        "g-key",
        "",
    )
    assert seen.body == {
        "contents": [
            {"role": "user", "parts": [{"text": "Who?"}]},
            {"role": "model", "parts": [{"text": "I"}]},
            {"role": "user", "parts": [{"text": "So?"}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {
            "maxOutputTokens": 7,
            "temperature": 0.0,
            "seed": 3,
            "stopSequences": ["x"],
            "responseJsonSchema": SCHEMA,
            "responseMimeType": "application/json",
        },
    }
    assert found.completions == (Completion("B", thought="hm"),)
    assert (found.usage.completion_tokens, found.usage.thought_tokens, found.fingerprint) == (7, 2, "gemini-x-001")


@pytest.mark.parametrize("reply", [gemini("", finish="SAFETY"), {"promptFeedback": {"blockReason": "SAFETY"}}])
async def test_what_gemini_blocks_is_filtered(serve: Serve, reply: Body):
    server = await serve(reply_with(reply))

    async with loaded("gemini", server) as model:
        found = await model.generate(QUESTION, Params())

    assert (found.text, found.completions[0].finish) == ("", "filter")


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
async def test_without_a_key_the_provider_itself_is_not_called(provider: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(f"{provider.upper()}_API_KEY", raising=False)

    with pytest.raises(UsageError, match=f"set {provider.upper()}_API_KEY"):
        load_model(f"{provider}/test")


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
async def test_the_key_is_in_no_error(serve: Serve, monkeypatch: pytest.MonkeyPatch, provider: str):
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "very-secret")
    server = await serve(reply_with({"error": {"message": "bad key very-secret"}}, 401))

    async with loaded(provider, server) as model:
        with pytest.raises(EndpointError) as caught:
            await model.generate(QUESTION, Params())

    assert "very-secret" not in str(caught.value)


async def test_a_provider_never_gets_the_key_of_openai(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    """A route of the guard whose config names no key passes on the name of OpenAI's variable."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    server = await serve(reply_with(anthropic()))

    async with loaded("anthropic", server, key_env="OPENAI_API_KEY") as model:
        await model.generate(QUESTION, Params())

    assert server.requests[0].headers["x-api-key"] == "sk-ant"
    assert "sk-openai" not in str(server.requests[0].headers)
