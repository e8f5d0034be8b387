"""Servers that do not know a parameter: it is dropped after the first complaint, and not asked for again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from evenhand.core.errors import EndpointError
from evenhand.core.types import Message, Params
from support.fixtures import Connect, Serve
from support.server import Body, Reply, chat, raw, refuse, reply_with

QUESTION = [Message("user", "Who?")]
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["A", "B"]}}}
FULL = Params(temperature=0, top_p=0.5, max_tokens=7, seed=1, stop=(".",), n=2, logprobs=5, schema=SCHEMA)

Complaint = Callable[[str], Reply]


def in_openai_style(name: str) -> Reply:
    return refuse(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)


def in_old_openai_style(name: str) -> Reply:
    return refuse(f"Unrecognized request argument supplied: '{name}'")


def in_vllm_style(name: str) -> Reply:
    place = f"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not permitted', "
    echo = "'input': {'seed': 1, 'response_format': {}, 'logprobs': True, 'stop': ['.']}}]"
    error = {"object": "error", "message": place + echo, "type": "BadRequestError", "param": None, "code": 400}
    return reply_with(error, 400)


def in_llama_cpp_style(name: str) -> Reply:
    error = {"code": 400, "message": f"Unsupported param: {name}", "type": "invalid_request_error"}
    return reply_with({"error": error}, 400)


def in_fastapi_style(name: str) -> Reply:
    echo = {"messages": [], "seed": 1, "response_format": {}, "logprobs": True, "stop": ["."]}
    detail = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": echo}
    ]
    return reply_with({"detail": detail}, 422)


def in_one_word(name: str) -> Reply:
    return reply_with({"error": f"this server does not support the parameter '{name}'"}, 400)


STYLES = [
    in_openai_style,
    in_old_openai_style,
    in_vllm_style,
    in_llama_cpp_style,
    in_fastapi_style,
    in_one_word,
]


def server_without(name: str, complain: Complaint) -> Callable[[Body], Reply]:
    """Answers requests that do not hold the parameter, and complains about those that do."""
    return lambda body: complain(name) if name in body else chat(n=body.get("n", 1), logprobs="logprobs" in body)


@pytest.mark.parametrize(
    "name", ["response_format", "logprobs", "seed", "max_tokens", "temperature", "top_p", "stop", "n"]
)
@pytest.mark.parametrize("complain", STYLES, ids=lambda style: style.__name__.removeprefix("in_"))
async def test_an_unknown_parameter_is_dropped_and_remembered(
    serve: Serve, connect: Connect, complain: Complaint, name: str
):
    server = await serve(answer=server_without(name, complain))
    model = connect(server)

    first = await model.generate(QUESTION, FULL)
    refused = sum(name in body for body in server.bodies)
    await model.generate(QUESTION, FULL)

    assert len(first.completions) == 2
    assert model.dropped == {name}
    assert refused == sum(name in body for body in server.bodies) == 1


@pytest.mark.parametrize(
    ("name", "lost"),
    [("response_format", "schema"), ("logprobs", "logprobs"), ("seed", "seed"), ("temperature", None)],
)
async def test_features_shrink_with_what_was_dropped(serve: Serve, connect: Connect, name: str, lost: str | None):
    server = await serve(answer=server_without(name, in_openai_style))
    model = connect(server)
    before = model.features

    await model.generate(QUESTION, FULL)

    assert before == {"logprobs", "schema", "seed", "tools"}
    assert before - model.features == ({lost} if lost else set())


async def test_without_response_format_the_schema_is_asked_for_in_the_last_question(serve: Serve, connect: Connect):
    server = await serve(answer=server_without("response_format", in_openai_style))
    asked = [Message("system", "Be brief."), *QUESTION]

    await connect(server).generate(asked, Params(schema=SCHEMA))

    messages = server.bodies[-1]["messages"]
    assert [each["role"] for each in messages] == ["system", "user"]
    assert messages[1]["content"].startswith("Who?\n\nReply with JSON only")
    assert '"enum":["A","B"]' in messages[1]["content"]
    assert asked[1].content == "Who?"


async def test_without_max_tokens_the_longer_name_is_used(serve: Serve, connect: Connect):
    server = await serve(answer=server_without("max_tokens", in_openai_style))

    await connect(server).generate(QUESTION, Params(max_tokens=7))

    assert [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in server.bodies] == [
        (7, None),
        (None, 7),
    ]


async def test_several_unknown_parameters_are_dropped_one_after_the_other(serve: Serve, connect: Connect):
    def answer(body: Body) -> Reply:
        unknown = [name for name in ("seed", "logprobs", "response_format") if name in body]
        return in_openai_style(unknown[0]) if unknown else chat()

    server = await serve(answer=answer)
    model = connect(server)

    await model.generate(QUESTION, Params(seed=1, logprobs=2, schema=SCHEMA))

    assert model.dropped == {"seed", "logprobs", "response_format"}
    assert model.features == {"tools"}


async def test_calls_that_run_side_by_side_learn_together(serve: Serve, connect: Connect):
    server = await serve(answer=server_without("seed", in_openai_style))
    model = connect(server, concurrency=5)

    await asyncio.gather(*(model.generate(QUESTION, Params(seed=seed)) for seed in range(40)))

    assert sum("seed" in body for body in server.bodies) <= 5


async def test_a_dropped_parameter_is_no_retry(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(answer=server_without("seed", in_openai_style))

    generation = await connect(server, retries=0).generate(QUESTION, Params(seed=1))

    assert (generation.usage.retries, waits) == (0, [])


ABOUT_THE_REQUEST = {
    "nothing is named": refuse("The request is malformed."),
    "the messages are named": refuse("Invalid value for 'content': a temperature was expected.", param="messages"),
    "the model is named": refuse("The model does not support seed, stop or n.", param="model"),
    "a parameter that was not sent": refuse("Unknown parameter: 'top_k'.", param="top_k"),
    "the context is too long": refuse(
        "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context length is 4096 tokens."
    ),
    "the context is too long, in other words": refuse(
        "the request exceeds the available context size, lower max_tokens"
    ),
    "ordinary words": refuse("Please stop sending n requests to this address."),
    "the request is echoed": reply_with(
        {"detail": [{"loc": ["body", "messages", 0], "msg": "too short", "input": {"seed": 1, "logprobs": True}}]}, 422
    ),
    "the request is echoed by vLLM": reply_with(
        {"message": "[{'type': 'json_invalid', 'loc': ('body', 4), 'msg': 'bad', 'input': {'seed': 1}}]"}, 400
    ),
    "no JSON": raw(b"seed is not supported", 400),
}


@pytest.mark.parametrize("complaint", ABOUT_THE_REQUEST.values(), ids=ABOUT_THE_REQUEST)
async def test_a_complaint_about_the_request_itself_is_an_error(
    serve: Serve, connect: Connect, waits: list[float], complaint: Reply
):
    server = await serve(complaint)
    model = connect(server)

    with pytest.raises(EndpointError, match="rejected the request") as caught:
        await model.generate(QUESTION, FULL)

    assert (model.dropped, len(server.requests), waits) == (set(), 1, [])
    # The next request may be a better one: this is no reason to give up the whole run.
    assert not caught.value.permanent


async def test_what_the_user_insists_on_is_not_dropped(serve: Serve, connect: Connect):
    server = await serve(answer=server_without("seed", in_openai_style))
    model = connect(server, extra={"extra_body": {"seed": 3}})

    with pytest.raises(EndpointError, match="seed"):
        await model.generate(QUESTION, Params())

    assert len(server.requests) == 1


async def test_a_prompt_that_the_content_filter_stopped_is_a_refusal(serve: Serve, connect: Connect):
    server = await serve(refuse("The prompt was filtered.", param="prompt", code="content_filter"))

    generation = await connect(server).generate(QUESTION, Params())

    assert [(each.text, each.finish) for each in generation.completions] == [("", "filter")]


@pytest.mark.parametrize("body", [None, [], "x", {"error": None}, {"error": []}, {"detail": [3]}, {"message": 3}])
async def test_strange_error_bodies_are_errors_too(serve: Serve, connect: Connect, body: Any):
    server = await serve(reply_with(body, 400))

    with pytest.raises(EndpointError, match="answered 400"):
        await connect(server).generate(QUESTION, FULL)
