"""The parts of operation within the whole server: one request, seen by metrics, audit file, health and log."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import openai
import pytest

from evenhand.server.telemetry.audit import read_audit
from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.server import chat, raw


def key(text: str, **fields: Any) -> dict[str, Any]:
    return {"hash": hashlib.sha256(text.encode()).hexdigest(), **fields}


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


KEYS = {"team": key("one"), "robot": key("two", may=["metrics"]), "scoring": key("three", may=["score"])}


async def test_a_revised_answer_is_seen_everywhere(
    serve: Serve, guarding: Guarding, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "evenhand")
    behind = await serve(chat(RUDE), chat(CLEAN))
    audit = {"file": str(tmp_path / "audit.sqlite"), "texts": "redacted"}
    guard = await guarding(route(behind.url, price={"input": 10, "output": 10}), keys=KEYS, audit=audit)

    answer = await guard.chat("I am jo@mail.example", headers=bearer("one"))
    metrics = await guard.get("/metrics", headers=bearer("two"))

    assert answer.body["evenhand"]["action"] == "revised"
    counted = (
        'evenhand_requests_total{action="revised",endpoint="/v1/chat/completions",route="guarded",status="200"} 1.0'
    )
    assert counted in metrics.text
    assert 'evenhand_model_calls_total{route="guarded"} 2.0' in metrics.text
    assert 'evenhand_cost_total{route="guarded"} 0.0005' in metrics.text
    assert [getattr(each, "evenhand_fields", dict)().get("action") for each in caplog.records] == ["revised"]
    assert "jo@mail.example" not in caplog.text
    assert guard.server.audit is not None
    await asyncio.to_thread(guard.server.audit.close)
    (row,) = read_audit(tmp_path / "audit.sqlite")
    assert (row["key"], row["action"], row["prompt"], row["first"], row["text"]) == (
        "team",
        "revised",
        "I am [email]",
        RUDE,
        CLEAN,
    )
    assert row["before"][0]["score"] > row["after"][0]["score"]


@pytest.mark.parametrize("status", [401, 500])
async def test_a_failing_endpoint_is_counted_and_told_by_readyz(serve: Serve, guarding: Guarding, status: int):
    behind = await serve(raw(b"", status))
    guard = await guarding(route(behind.url))

    for _ in range(3):
        assert (await guard.chat()).status == 502
    ready = await guard.get("/readyz")
    metrics = await guard.get("/metrics")

    assert (ready.status, ready.body) == (
        200,
        {"status": "ready", "routes": 1, "failing": 1, "upstreams": 1, "upstreams_open": 0},
    )
    assert f'evenhand_upstream_errors_total{{kind="{status}",route="guarded"}} 3.0' in metrics.text


async def test_refused_requests_are_counted_without_labels_of_their_making(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), keys=KEYS)

    await guard.chat(headers=bearer("wrong"))
    await guard.chat(model="made-up", headers=bearer("one"))
    metrics = (await guard.get("/metrics", headers=bearer("two"))).text

    where = 'action="",endpoint="/v1/chat/completions",route="other"'
    assert f'evenhand_requests_total{{{where},status="401"}} 1.0' in metrics
    assert f'evenhand_requests_total{{{where},status="404"}} 1.0' in metrics
    assert "made-up" not in metrics


async def test_scoring_needs_its_right_and_answers_openais_client(serve: Serve, guarding: Guarding):
    guard = await guarding(route((await serve(chat(CLEAN))).url), keys=KEYS)

    async with openai.AsyncOpenAI(base_url=guard.url, api_key="three", max_retries=0) as client:
        answer = await client.moderations.create(input=[CLEAN, RUDE])
    async with openai.AsyncOpenAI(base_url=guard.url, api_key="one", max_retries=0) as client:
        with pytest.raises(openai.PermissionDeniedError):
            await client.moderations.create(input=CLEAN)

    assert [each.flagged for each in answer.results] == [False, True]
    assert guard.server.events.recent[0].action == "scored"


async def test_perspectives_clients_are_answered_and_refused_in_their_form(serve: Serve, guarding: Guarding):
    guard = await guarding(route((await serve(chat(CLEAN))).url), keys=KEYS)
    asked = {"comment": {"text": RUDE}, "requestedAttributes": {"TOXICITY": {}}}

    right = await guard.post("/v1alpha1/comments:analyze?key=three", asked)
    wrong = await guard.post("/v1alpha1/comments:analyze?key=four", asked)

    assert right.body["attributeScores"]["TOXICITY"]["summaryScore"]["value"] > 0.5
    assert (wrong.status, wrong.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert [event.status for event in guard.server.events.recent] == [200, 401]
