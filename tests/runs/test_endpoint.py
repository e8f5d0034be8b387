"""Whole runs against a real server: what an endpoint does to a run, and what must not get from it into the store."""

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EndpointError
from evenhand.core.progress import Progress
from evenhand.core.types import Usage
from evenhand.models.budget import Limits
from evenhand.runs.store import Store
from support.fixtures import Serve
from support.runs import Workshop
from support.server import Body, Reply, chat, raw, refuse, reply_with

KEY = "sk-very-secret-key"
SIZE = 24


async def run(workshop: Workshop, url: str, name: str = "run", **fields: Any) -> Progress:
    model = {"spec": "openai/test", "base_url": url, "retries": 0}
    return await workshop.run(name, models=[model], **fields)


async def test_the_key_gets_nowhere_even_if_the_server_repeats_it(
    workshop: Workshop, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def answer(body: Body) -> Reply:
        case = body["messages"][0]["content"].partition("Case ")[2]
        echoes = {
            "1,": refuse(f"Bad key {KEY}", status=401),
            "2,": raw(f"Oops: {KEY}".encode(), 500),
            "3,": raw(f"<p>{KEY}</p>".encode()),
            "4,": raw(b"", 302, {"Location": f"http://elsewhere/?k={KEY}"}),
        }
        return next((reply for start, reply in echoes.items() if case.startswith(start)), chat("A"))

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = await serve(answer=answer)

    progress = await run(workshop, server.url, reading="text", settings={"concurrency": 1})

    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert progress.statuses["failed"] == 4
    stored = workshop.exported() + workshop.exported(table="turns")
    stored += b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert stored.count(b"[key]") >= 4
    assert KEY.encode() not in stored


async def test_a_key_in_the_path_gets_nowhere(
    workshop: Workshop, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    server = await serve(raw(f"Oops: {KEY}".encode(), 500), chat("A"))

    await run(workshop, f"{server.url}/$GATEWAY_KEY", reading="text", settings={"concurrency": 1})

    assert server.requests[0].path == f"/v1/{KEY}/chat/completions"
    stored = workshop.exported() + workshop.exported(table="turns")
    stored += b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert b"$GATEWAY_KEY/chat/completions" in stored
    assert KEY.encode() not in stored


async def test_a_server_without_logprobs_and_schemas_is_asked_in_words(workshop: Workshop, serve: Serve):
    def answer(body: Body) -> Reply:
        for name in ("logprobs", "response_format"):
            if name in body:
                return refuse(f"'{name}' is not supported", param=name)
        return chat('{"answer": "B"}')

    server = await serve(answer=answer)

    progress = await run(workshop, server.url)

    assert progress.statuses == {"graded": SIZE}
    assert {row["grade_reading"] for row in workshop.rows()} <= {"text", "constrained"}


async def test_a_resumed_run_draws_the_same_replies_where_the_server_gives_no_logprobs(
    workshop: Workshop, serve: Serve
):
    server = await serve(answer=lambda body: chat("AB"[body.get("seed", 0) % 2], n=body.get("n", 1)))
    whole = await serve(answer=lambda body: chat("AB"[body.get("seed", 0) % 2], n=body.get("n", 1)))
    plan: dict[str, Any] = {"methods": ["weigh"]}

    stopped = await run(workshop, server.url, **plan, settings={"concurrency": 1, "budget": Limits(calls=3)})
    await run(workshop, server.url, **plan, settings={"concurrency": 1, "resume": True})
    await run(workshop, whole.url, "whole", **plan, settings={"concurrency": 1})

    assert stopped.stopped is not None
    assert [each for each in server.bodies if each not in whole.bodies] == []
    assert len(server.bodies) == len(whole.bodies)
    assert workshop.exported() == workshop.exported("whole")


async def test_a_server_that_is_not_there_is_told_and_leaves_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

    with pytest.raises(EndpointError, match="is the server up"):
        await run(workshop, f"http://127.0.0.1:{port}/v1")

    assert not (workshop.directory / "run").exists()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refuse("No such key.", status=401), "it was sent no API key"),
        (refuse("No such model.", status=404), "check the model name"),
        (raw(b"<html>It works!</html>"), "sent a web page"),
        (raw(b"", 301, {"Location": "https://x/v1"}), "it redirects to https://x/v1"),
    ],
    ids=["401", "404", "page", "redirect"],
)
async def test_a_wrong_endpoint_ends_the_run_after_a_few_calls(
    workshop: Workshop, serve: Serve, reply: Reply, words: str
):
    server = await serve(reply)

    with pytest.raises(EndpointError, match=words):
        await run(workshop, server.url, settings={"concurrency": 4}, benchmark_options={"size": 500})

    assert len(server.requests) <= 8
    assert not (workshop.directory / "run").exists()


async def test_a_prompt_that_azure_filters_is_a_refusal(workshop: Workshop, serve: Serve):
    server = await serve(refuse("Filtered.", param="prompt", code="content_filter"))

    progress = await run(workshop, server.url)

    assert progress.statuses == {"refused": SIZE}


async def test_a_reply_without_usage_is_counted_by_its_length(workshop: Workshop, serve: Serve):
    body = {"choices": [{"message": {"content": "A"}, "finish_reason": "stop"}]}
    server = await serve(reply_with(body))

    progress = await run(workshop, server.url, reading="text")

    assert progress.spent.calls == SIZE
    assert progress.spent.prompt_tokens > 50 * SIZE


async def test_a_resumed_run_has_spent_what_failed_calls_cost(workshop: Workshop, serve: Serve):
    server = await serve(chat("A"), *[raw(b"{")] * 3, chat("A"))
    settings: dict[str, Any] = {"concurrency": 1, "budget": Limits(calls=5)}

    first = await run(workshop, server.url, reading="text", settings=settings)
    again = await run(workshop, server.url, reading="text", settings={**settings, "resume": True})

    assert (first.spent.calls, first.statuses["failed"]) == (5, 3)
    assert again.spent == first.spent
    assert len(server.requests) == 5
    with closing(Store(workshop.directory / "run")) as store:
        assert sum(store.usage().values(), Usage()) == first.spent
        assert store.recorded() == {"": 2}
    costs = [row["spent"] and row["spent"]["calls"] for row in workshop.rows(table="turns")]
    assert costs == [None, 1, 1, 1, None]
