"""What is behind the guard stays there: clients get no address, key or text of an endpoint, but an id for the log."""

import json
import logging

import pytest
from aiohttp import web

from evenhand.server.errors import cleaned
from evenhand.server.telemetry.logs import JsonLines
from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.server import Reply, chat, raw, refuse, reply_with

TOKEN = "sk-proj-0123456789abcdefABCDEF"
SECRETS = ("10.1.2.3", "vllm.internal", "gpu-7:8000", "org-marker", TOKEN, "/srv/weights")
SAID = f"org-marker at http://gpu-7:8000/v1 (10.1.2.3, vllm.internal) with {TOKEN} in /srv/weights/llama"


def hides(text: str) -> bool:
    return not any(each in text for each in SECRETS)


FAULTS: dict[str, tuple[Reply, int]] = {
    "key": (refuse(SAID, status=401), 502),
    "model": (refuse(SAID, status=404), 502),
    "conflict": (refuse(SAID, status=409), 409),
    "rate": (refuse(SAID, status=429), 429),
    "fault": (refuse(SAID, status=500), 502),
    "busy": (raw(SAID.encode(), 503), 503),
    "page": (raw(f"<html>{SAID}</html>".encode(), 400), 400),
}
NO_ANSWERS: dict[str, tuple[Reply, int]] = {
    "no completion": (raw(SAID.encode()), 502),
    "no choices": (reply_with({"choices": [], "server": SAID}), 502),
}
CASES = [(*fault, stream) for fault in FAULTS.values() for stream in (False, True)]
CASES += [(*fault, False) for fault in NO_ANSWERS.values()]


@pytest.mark.parametrize(("reply", "status", "stream"), CASES)
async def test_faults_of_the_endpoint_come_with_an_id_that_the_log_resolves(
    serve: Serve, guarding: Guarding, caplog: pytest.LogCaptureFixture, reply: Reply, status: int, stream: bool
):
    caplog.set_level(logging.INFO)
    behind = await serve(reply)
    guard = await guarding(route(behind.url), log={"requests": False})

    answer = await guard.chat(stream=stream)
    await guard.told()

    assert answer.status == status
    assert hides(answer.text), answer.text
    number = answer.headers["X-Request-Id"]
    assert number in answer.body["error"]["message"]
    lines = [json.loads(JsonLines().format(each)) for each in caplog.records]
    (line,) = [each for each in lines if each.get("id") == number]
    assert "org-marker" in line["error"] or "refuses the guard's key" in line["error"]


async def test_a_stream_that_breaks_ends_with_an_id_and_no_address(serve: Serve, guarding: Guarding):
    async def failing(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunk = {"choices": [{"index": 0, "delta": {"content": f"{CLEAN} " * 40}, "finish_reason": None}]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await response.write(f"data: {json.dumps({'error': {'message': SAID}})}\n\n".encode())
        return response

    behind = await serve(failing)
    guard = await guarding(route(behind.url))

    answer = await guard.chat(stream=True)
    error = json.loads(answer.text.split("data: ")[-1])["error"]
    await guard.told()

    assert answer.status == 200
    assert hides(answer.text)
    assert answer.headers["X-Request-Id"] in error["message"]
    assert "org-marker" in guard.event.error


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Unknown parameter: 'thinking_budget'.", "Unknown parameter: 'thinking_budget'."),
        ("This model's maximum context length is 4096 tokens.", "maximum context length is 4096 tokens"),
        (f"temperature is at most 2.0; {SAID}", "temperature is at most 2.0"),
    ],
)
async def test_the_clients_own_mistake_comes_with_a_clean_reason(
    serve: Serve, guarding: Guarding, said: str, words: str
):
    behind = await serve(refuse(said, param="messages.0.content", code="context_length_exceeded"))
    guard = await guarding(route(behind.url))

    answer = await guard.chat()

    error = answer.body["error"]
    assert (answer.status, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == "messages.0.content"
    assert words in error["message"]
    assert hides(answer.text.replace("org-marker", ""))


@pytest.mark.parametrize("field", ["param", "code"])
async def test_fields_of_an_error_are_names_or_nothing(serve: Serve, guarding: Guarding, field: str):
    behind = await serve(refuse("No.", **{field: SAID}))
    guard = await guarding(route(behind.url))

    assert (await guard.chat()).body["error"][field] is None


async def test_why_a_check_failed_is_in_the_log_only(serve: Serve, guarding: Guarding):
    model, judge = await serve(chat(CLEAN)), await serve(refuse(SAID))
    guard = await guarding(
        route(model.url, method="default", evaluators=["bias"], judge="openai/critic", judge_base_url=judge.url)
    )

    answer = await guard.chat()
    await guard.told()

    assert answer.body["evenhand"]["before"][0]["problem"] == "it could not be scored"
    assert answer.body["evenhand"]["why"] == ["bias could not be checked: it could not be scored"]
    assert hides(answer.text)
    assert "org-marker" in guard.event.error


async def test_why_a_revision_failed_is_in_the_log_only(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), refuse(SAID, status=500))
    guard = await guarding(route(behind.url))

    answer = await guard.chat()
    await guard.told()

    assert answer.body["evenhand"]["why"] == ["toxicity", "a model call failed"]
    assert hides(answer.text)
    assert "org-marker" in guard.event.error


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("see https://host/path?key=1 for more", "see [address] for more"),
        ("POST localhost:8000 failed", "POST [address] failed"),
        ("api.example.org refused", "[address] refused"),
        ("messages.0.content is not a text", "messages.0.content is not a text"),
        ("gpt-4.1-mini has no logprobs, e.g. here", "gpt-4.1-mini has no logprobs, e.g. here"),
        ("top_p is 1.5, not in 0.0 to 1.0", "top_p is 1.5, not in 0.0 to 1.0"),
        (f"key {TOKEN}", "key [secret]"),
        ("two\n\nlines", "two lines"),
        ("x" * 5000, "x" * 300),
    ],
)
def test_reasons_lose_addresses_and_keys_and_keep_the_names_of_fields(said: str, shown: str):
    assert cleaned(said) == shown
