"""The OpenAI-compatible model against a real server: what is sent, and what is read from the reply."""

import asyncio

import pytest

from evenhand.core.types import Message, Params, TokenLogprob
from evenhand.models.load import load_model
from evenhand.models.openai import OpenAIModel
from evenhand.models.reasoning import ReasoningModel
from support.fixtures import Connect, Serve
from support.server import chat, completion, reply_with

QUESTION = [Message("system", "Be brief."), Message("user", "Who?")]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def test_a_plain_request_holds_nothing_that_was_not_asked_for(serve: Serve, connect: Connect):
    server = await serve(chat())

    await connect(server).generate(QUESTION, Params())

    assert server.bodies == [
        {
            "model": "test-model",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}],
        }
    ]
    assert server.requests[0].path == "/v1/chat/completions"


async def test_every_parameter_is_sent(serve: Serve, connect: Connect):
    server = await serve(chat(n=2))
    params = Params(temperature=0.0, top_p=0.9, max_tokens=7, seed=11, stop=("\n", "."), n=2, logprobs=5, schema=SCHEMA)

    await connect(server).generate(QUESTION, params)

    sent = server.bodies[0]
    del sent["model"], sent["messages"]
    assert sent == {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 11,
        "stop": ["\n", "."],
        "n": 2,
        "logprobs": True,
        "top_logprobs": 5,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
        },
    }


async def test_extra_body_is_sent_with_every_request(serve: Serve, connect: Connect):
    server = await serve(chat())

    await connect(server, extra={"extra_body": {"top_k": 1}}).generate(QUESTION, Params())

    assert server.bodies[0]["top_k"] == 1


async def test_the_key_is_sent_as_a_bearer_token(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTHER_KEY", "sk-other\n")
    server = await serve(chat())

    await connect(server, extra={"key_env": "OTHER_KEY"}).generate(QUESTION, Params())

    assert server.requests[0].headers["Authorization"] == "Bearer sk-other"


async def test_without_a_key_no_authorization_is_sent(serve: Serve, connect: Connect):
    server = await serve(chat())

    await connect(server).generate(QUESTION, Params())

    assert "Authorization" not in server.requests[0].headers


async def test_the_reply_becomes_a_generation(serve: Serve, connect: Connect):
    server = await serve(chat("It was B.", n=2, finish="length"))

    generation = await connect(server).generate(QUESTION, Params(n=2))

    assert [each.text for each in generation.completions] == ["It was B.", "It was B."]
    assert {each.finish for each in generation.completions} == {"length"}
    assert generation.model == "openai/test-model"
    assert not generation.cached
    assert generation.latency > 0
    usage = generation.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.retries) == (1, 20, 5, 0)


async def test_logprobs_are_read(serve: Serve, connect: Connect):
    body = completion("B")
    top = [{"token": "B", "logprob": -0.1}, {"token": "A", "logprob": -2.5}]
    body["choices"][0]["logprobs"] = {"content": [{"token": "B", "logprob": -0.1, "top_logprobs": top}]}
    server = await serve(reply_with(body))

    generation = await connect(server).generate(QUESTION, Params(logprobs=2))

    assert generation.completions[0].logprobs == (TokenLogprob("B", -0.1, (("B", -0.1), ("A", -2.5))),)


@pytest.mark.parametrize(
    ("message", "finish", "expected"),
    [
        ({"refusal": "I will not."}, "stop", ("", "stop", "I will not.")),
        ({"refusal": ""}, "stop", ("", "stop", None)),
        ({}, "content_filter", ("", "filter", None)),
        ({}, "stop", ("", "stop", None)),
        ({}, "tool_calls", ("", "other", None)),
    ],
    ids=["refusal", "empty refusal", "content filter", "null content", "unknown finish"],
)
async def test_replies_without_text_are_still_replies(
    serve: Serve, connect: Connect, message: dict[str, str], finish: str, expected: tuple[str, str, str | None]
):
    server = await serve(chat(None, finish=finish, **message))

    got = (await connect(server).generate(QUESTION, Params())).completions[0]

    assert (got.text, got.finish, got.refusal) == expected


async def test_a_server_that_reports_no_usage_is_no_problem(serve: Serve, connect: Connect):
    body = completion("B")
    del body["usage"]
    server = await serve(reply_with(body))

    generation = await connect(server).generate(QUESTION, Params())

    assert (generation.text, generation.usage.calls, generation.usage.tokens) == ("B", 1, 0)


async def test_a_server_that_ignores_n_is_asked_again_with_other_seeds(serve: Serve, connect: Connect):
    server = await serve(chat("B"))

    generation = await connect(server).generate(QUESTION, Params(n=3, seed=5))

    assert len(generation.completions) == 3
    assert sorted((body["seed"], body.get("n")) for body in server.bodies) == [(5, 3), (6, None), (7, None)]
    assert (generation.usage.calls, generation.usage.prompt_tokens) == (3, 60)


async def test_when_one_of_several_calls_fails_none_goes_on_unseen(serve: Serve, connect: Connect):
    def answer(body: dict[str, object]):
        return reply_with({"error": "no"}, 403) if body.get("seed") == 6 else chat("B")

    server = await serve(answer=answer)
    model = connect(server)

    with pytest.raises(Exception, match="403"):
        await model.generate(QUESTION, Params(n=3, seed=5))

    assert model.client.limit.in_flight == 0
    assert len(server.requests) == 3


async def test_many_calls_share_one_session(serve: Serve, connect: Connect):
    server = await serve(chat())
    model = connect(server, concurrency=8)

    await asyncio.gather(*(model.generate(QUESTION, Params()) for _ in range(50)))

    assert len(server.requests) == 50
    assert model.client.limit.in_flight == 0


async def test_the_fingerprint_names_the_endpoint_and_not_the_key(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = await serve(chat())

    fingerprint = connect(server).fingerprint()

    assert fingerprint["endpoint"] == f"{server.url}/chat/completions"
    assert "sk-secret" not in str(fingerprint)


async def test_the_model_is_found_by_its_spec(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")

    model = load_model("openai/org/name")

    assert isinstance(model, ReasoningModel)
    assert isinstance(model.inner, OpenAIModel)
    assert (model.spec, model.inner.name) == ("openai/org/name", "org/name")
