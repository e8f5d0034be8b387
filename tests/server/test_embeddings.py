"""Embeddings: passed on, and only numbers come back."""

import base64
import struct
from typing import Any

import pytest

from support.fixtures import Serve
from support.guard_server import RUDE, Guarding, Served, route
from support.server import Reply, chat, hang, raw, refuse, reply_with


def vectors(*given: Any, **fields: Any) -> Reply:
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(given)]
    return reply_with({"object": "list", "data": data, "model": "behind", "usage": {"prompt_tokens": 7}, **fields})


async def ask(guard: Served, given: Any = "Hello?", **fields: Any) -> Any:
    return await guard.post("/v1/embeddings", {"model": "guarded", "input": given, **fields})


async def test_vectors_come_through_with_usage_and_cost(serve: Serve, guarding: Guarding):
    behind = await serve(vectors([0.5, -1, 2], [1.0, 0.0, 0.0]))
    guard = await guarding(route(behind.url, price={"input": 1, "output": 1}))

    answer = await ask(guard, ["Hello?", "Bye."], dimensions=3)

    assert answer.body == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -1.0, 2.0]},
            {"object": "embedding", "index": 1, "embedding": [1.0, 0.0, 0.0]},
        ],
        "model": "guarded",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    seen = behind.requests[0]
    assert seen.path == "/v1/embeddings"
    assert seen.body == {
        "model": "behind",
        "input": ["Hello?", "Bye."],
        "dimensions": 3,
        "encoding_format": "float",
    }
    event = guard.event
    assert (event.endpoint, event.action, event.prompt) == ("/v1/embeddings", "embedded", "Hello?\n\nBye.")
    assert (event.usage.prompt_tokens, event.usage.cost) == (7, 7e-6)


async def test_base64_is_written_here(serve: Serve, guarding: Guarding):
    behind = await serve(vectors([0.5, -1.0]))
    guard = await guarding(route(behind.url))

    answer = await ask(guard, [1, 2, 3], encoding_format="base64")

    assert struct.unpack("<2f", base64.b64decode(answer.body["data"][0]["embedding"])) == (0.5, -1.0)
    assert behind.bodies[0]["encoding_format"] == "float"


async def test_the_order_is_that_of_the_inputs(serve: Serve, guarding: Guarding):
    data = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    behind = await serve(reply_with({"data": data}))
    guard = await guarding(route(behind.url))

    answer = await ask(guard, ["a", "b"])

    assert [each["embedding"] for each in answer.body["data"]] == [[1.0], [2.0]]


async def test_other_fields_of_the_reply_stay_behind(serve: Serve, guarding: Guarding):
    behind = await serve(vectors([1.0], note=RUDE, model=RUDE))
    guard = await guarding(route(behind.url))

    assert "worthless" not in (await ask(guard)).text


@pytest.mark.parametrize(
    "reply",
    [
        vectors(RUDE),
        vectors([RUDE]),
        vectors([]),
        vectors([[1.0]]),
        vectors(None),
        vectors([1.0], [2.0]),
        raw(b'{"data": [{"embedding": [1e999]}]}'),
        reply_with({"data": RUDE}),
        reply_with({}),
    ],
)
async def test_anything_but_numbers_is_a_fault_of_the_endpoint(serve: Serve, guarding: Guarding, reply: Reply):
    behind = await serve(reply)
    guard = await guarding(route(behind.url))

    answer = await ask(guard)

    assert answer.status == 502
    assert "worthless" not in answer.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", 3]}, "input"),
        ({"input": [True]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
    ],
)
async def test_bad_requests_name_the_field(serve: Serve, guarding: Guarding, fields: dict[str, Any], param: str):
    behind = await serve(vectors([1.0]))
    guard = await guarding(route(behind.url))

    answer = await guard.post("/v1/embeddings", {"model": "guarded", "input": "Hello?", **fields})

    assert (answer.status, answer.body["error"]["param"]) == (400, param)
    assert behind.bodies == []


async def test_a_model_without_embeddings_says_so(guarding: Guarding):
    guard = await guarding({"model": "fake/echo"})

    answer = await ask(guard)

    assert answer.status == 400
    assert "makes no embeddings" in answer.body["error"]["message"]


async def test_faults_and_time_limits_are_those_of_chat(serve: Serve, guarding: Guarding):
    behind = await serve(refuse("slow", status=429), chat(RUDE), hang())
    guard = await guarding(route(behind.url, timeout=0.2))

    busy, wrong, late = [await ask(guard) for _ in range(3)]

    assert (busy.status, wrong.status, late.status) == (429, 502, 504)
    assert "Retry-After" in busy.headers
