"""Azure-style paths, and what is said of paths that are not served."""

import hashlib
from typing import Any

import openai
import pytest

from evenhand.server.errors import endpoint_of
from support.fixtures import Serve
from support.guard_server import CLEAN, Guarding, route
from support.server import Body, Reply, chat, reply_with

HELLO: Any = [{"role": "user", "content": "Hello?"}]
KEYS = {"team": {"hash": hashlib.sha256(b"secret").hexdigest()}}


def by_kind(body: Body) -> Reply:
    return chat(CLEAN) if "messages" in body else reply_with({"data": [{"embedding": [0.5, 1.0]}]})


async def test_azure_clients_need_only_the_address(serve: Serve, guarding: Guarding):
    behind = await serve(answer=by_kind)
    guard = await guarding(routes={"team/one": route(behind.url), "two": route(behind.url)}, keys=KEYS)

    async with openai.AsyncAzureOpenAI(
        azure_endpoint=guard.root, api_key="secret", api_version="2024-10-21", max_retries=0
    ) as client:
        answer = await client.chat.completions.create(model="two", messages=HELLO)
        other = await client.chat.completions.create(model="team/one", messages=HELLO)
        text = await client.completions.create(model="two", prompt="Say:")
        vector = await client.embeddings.create(model="two", input="Hello?")
        response = await client.responses.create(model="two", input="Hello?")
        models = [each.id async for each in client.models.list()]

    assert (answer.choices[0].message.content, answer.model) == (CLEAN, "two")
    assert other.model == "team/one"
    assert text.choices[0].text == response.output_text == CLEAN
    assert vector.data[0].embedding == [0.5, 1.0]
    assert models == ["team/one", "two"]
    endpoints = [(each.endpoint, each.route) for each in guard.server.events.recent]
    assert endpoints == [
        ("/v1/chat/completions", "two"),
        ("/v1/chat/completions", "team/one"),
        ("/v1/completions", "two"),
        ("/v1/embeddings", "two"),
        ("/v1/responses", "two"),
    ]


async def test_azures_newer_paths_and_its_key_header(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), keys=KEYS)
    body = {"model": "guarded", "messages": HELLO, "input": "Hello?"}

    right = await guard.post("/openai/v1/chat/completions", body, headers={"api-key": "secret"})
    response = await guard.post(
        "/openai/v1/responses", {"model": "guarded", "input": "Hello?"}, headers={"api-key": "secret"}
    )
    wrong = await guard.post("/openai/v1/chat/completions", body, headers={"api-key": "guess"})

    assert (right.status, response.status, wrong.status) == (200, 200, 401)


async def test_the_deployment_is_the_route(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    fits = await guard.post("/openai/deployments/guarded/chat/completions", {"messages": HELLO})
    other = await guard.post("/openai/deployments/other/chat/completions", {"model": "guarded", "messages": HELLO})

    assert (fits.status, fits.body["model"]) == (200, "guarded")
    assert (other.status, other.body["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/openai/deployments/a/chat/completions", "/v1/chat/completions"),
        ("/openai/deployments/a/b/completions", "/v1/completions"),
        ("/openai/v1/embeddings", "/v1/embeddings"),
        ("/openai/responses", "/v1/responses"),
        ("/openai/other", "/openai/other"),
    ],
)
def test_endpoints_have_one_name(path: str, expected: str):
    assert endpoint_of(path) == expected


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/audio/speech", "/v1/audio/speech is not served. This server has /v1/chat/completions, /v1/responses,"),
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/chat/completions", "/chat/completions is not served. Add /v1 to the base URL."),
        ("/responses", "Add /v1 to the base URL."),
        ("/v1/v1/chat/completions", "The base URL has /v1 twice."),
        ("/v1/responses/resp_1/cancel", "Responses are not stored"),
        ("/" + "a" * 3000, "a is not served."),
    ],
)
async def test_unknown_paths_say_what_to_change(serve: Serve, guarding: Guarding, path: str, words: str):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.post(path, {})

    assert answer.status == 404
    assert words in answer.body["error"]["message"]
    assert len(answer.body["error"]["message"]) < 400
    assert answer.body["error"]["code"] == "unknown_url"


async def test_a_wrong_method_says_which_is_right(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.get("/v1/chat/completions")

    assert answer.status == 405
    assert answer.body["error"]["message"] == "/v1/chat/completions accepts POST requests only, not GET."


async def test_unknown_paths_need_a_key_where_there_are_any(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), keys=KEYS)

    assert (await guard.post("/v1/audio/speech", {})).status == 401
