"""Around the answers: models, keys, switching the method off, CORS, sizes, the page, and the end of a server."""

import asyncio
import hashlib
from typing import Any

import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route, streamed, until
from support.server import chat, hang


def key(text: str, **fields: Any) -> dict[str, Any]:
    return {"hash": hashlib.sha256(text.encode()).hexdigest(), **fields}


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def test_models_are_the_routes(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(routes={"team/one": route(behind.url), "two": route(behind.url)})

    listed = await guard.get("/v1/models")

    assert [each["id"] for each in listed.body["data"]] == ["team/one", "two"]
    assert (await guard.get("/v1/models/team/one")).body["id"] == "team/one"
    missing = await guard.get("/v1/models/three")
    assert missing.status == 404
    assert missing.body["error"]["code"] == "model_not_found"


async def test_an_unknown_route_is_told_with_those_that_exist(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(model="gaurded")

    assert answer.status == 404
    assert "did you mean guarded?" in answer.body["error"]["message"]
    assert guard.event.route == ""


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"X-Evenhand-Method": "default"}, {}),
        ({"X-Evenhand-Method": "none"}, {}),
        ({}, {"evenhand": {"method": "none"}}),
    ],
)
async def test_only_a_key_that_may_can_switch_the_method_off(
    serve: Serve, guarding: Guarding, headers: dict[str, str], fields: dict[str, Any]
):
    behind = await serve(chat(RUDE))
    keys = {"plain": key("one"), "tester": key("two", may=["bypass"])}
    guard = await guarding(route(behind.url, policy="block"), keys=keys)

    refused = await guard.chat(headers={**bearer("one"), **headers}, **fields)
    allowed = await guard.chat(headers={**bearer("two"), **headers}, **fields)

    assert refused.status == 403
    assert len(behind.bodies) == 1
    assert "evenhand" not in behind.bodies[0]
    assert allowed.body["choices"][0]["message"]["content"] == RUDE
    assert allowed.headers["X-Evenhand-Action"] == allowed.body["evenhand"]["action"] == "bypassed"
    assert (guard.event.action, guard.event.key) == ("bypassed", "tester")


async def test_a_stream_tells_that_it_was_not_checked(serve: Serve, guarding: Guarding):
    behind = await serve(streamed([RUDE]))
    guard = await guarding(route(behind.url), keys={"tester": key("two", may=["bypass"])})

    answer = await guard.chat(stream=True, headers={**bearer("two"), "X-Evenhand-Method": "none"})

    assert RUDE in answer.text
    assert '"action":"bypassed"' in answer.text
    assert guard.event.action == "bypassed"


async def test_nobody_can_switch_it_off_without_a_key(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE))
    guard = await guarding(route(behind.url))

    assert (await guard.chat(headers={"X-Evenhand-Method": "default"})).status == 403
    assert (await guard.chat(headers={"X-Evenhand-Method": "other"})).status == 400
    assert behind.bodies == []


async def test_keys_are_needed_where_there_are_any(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), keys={"team": key("secret")})

    without, wrong = await guard.chat(), await guard.chat(headers=bearer("guess"))
    right = await guard.chat(headers=bearer("secret"))

    assert (without.status, wrong.status, right.status) == (401, 401, 200)
    assert wrong.body["error"]["code"] == "invalid_api_key"
    assert (await guard.get("/v1/models")).status == 401
    assert (await guard.get("/healthz")).status == (await guard.get("/readyz")).status == 200
    assert (await guard.get("/metrics", headers=bearer("secret"))).status == 403
    assert (await guard.post("/admin/reload", headers=bearer("secret"))).status == 403
    assert "secret" not in repr(list(guard.server.events.recent))


async def test_the_page_is_for_those_who_may_see_it(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    keys = {"team": key("one"), "boss": key("two", may=["admin"])}
    guard = await guarding(route(behind.url), keys=keys)

    assert (await guard.get("/")).status == 200  # its files hold no data, and ask for the key
    assert (await guard.get("/page/live.js")).status == 200
    assert (await guard.get("/page/events")).status == 401
    assert (await guard.get("/page/state")).status == 401
    assert (await guard.get("/page/state", headers=bearer("one"))).status == 403
    assert (await guard.get("/page/state", headers=bearer("two"))).status == 200


async def test_requests_that_are_too_large_are_refused(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), limits={"body_mb": 0.01})

    answer = await guard.chat("x" * 20_000)

    async def pieces():
        for _ in range(20):
            yield b" " * 1000

    unannounced = await guard._ask("POST", "/v1/chat/completions", data=pieces())
    assert answer.status == unannounced.status == 413
    assert answer.body["error"]["message"]
    assert unannounced.body["error"]["message"]
    assert behind.bodies == []


async def test_a_full_server_answers_429(serve: Serve, guarding: Guarding):
    behind = await serve(hang())
    guard = await guarding(route(behind.url), limits={"at_once": 1, "waiting": 0})
    first = asyncio.ensure_future(guard.chat())
    await behind.has_seen(1)

    second = await guard.chat()

    assert second.status == 429
    assert int(second.headers["Retry-After"]) >= 1
    assert second.body["error"]["type"] == "rate_limit_error"
    first.cancel()


async def test_other_origins_are_kept_out_by_default(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), keys={"team": key("one")})
    origin = {"Origin": "https://app.example.org"}

    asked = await guard._ask(
        "OPTIONS", "/v1/chat/completions", headers={**origin, "Access-Control-Request-Method": "POST"}
    )
    answer = await guard.chat(headers={**origin, **bearer("one")})

    assert asked.status in (401, 403, 405)
    assert "Access-Control-Allow-Origin" not in {**asked.headers, **answer.headers}


async def test_named_origins_may_call(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), keys={"team": key("one")}, cors=["https://app.example.org"])
    origin = {"Origin": "https://app.example.org"}

    asked = await guard._ask(
        "OPTIONS", "/v1/chat/completions", headers={**origin, "Access-Control-Request-Method": "POST"}
    )
    answer = await guard.chat(headers={**origin, **bearer("one")})
    failed = await guard.chat(headers=origin)
    other = await guard.chat(headers={"Origin": "https://evil.example.org", **bearer("one")})

    assert asked.status == 204
    assert asked.headers["Access-Control-Allow-Origin"] == "https://app.example.org"
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example.org"
    assert failed.headers["Access-Control-Allow-Origin"] == "https://app.example.org"
    assert "Access-Control-Allow-Origin" not in other.headers


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/none", 404), ("GET", "/v1/chat/completions", 405)])
async def test_wrong_addresses_read_like_openais(serve: Serve, guarding: Guarding, method: str, path: str, status: int):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard._ask(method, path)

    assert answer.status == status
    assert answer.body["error"]["message"]


async def test_draining_finishes_what_is_in_flight_and_turns_the_rest_away(serve: Serve, guarding: Guarding):
    go_on = asyncio.Event()

    async def later(request):
        await go_on.wait()
        return await chat(CLEAN)(request)

    behind = await serve(later)
    guard = await guarding(route(behind.url))
    first = asyncio.ensure_future(guard.chat())
    await behind.has_seen(1)

    drained = asyncio.ensure_future(guard.server.drain(grace=0))
    await until(lambda: guard.server.closed)
    second, ready = await guard.chat(), await guard.get("/readyz")

    assert second.status == 503
    assert int(second.headers["Retry-After"]) >= 1
    assert second.headers["Connection"] == "close"
    assert ready.status == 503
    assert not drained.done()
    go_on.set()
    assert (await first).body["choices"][0]["message"]["content"] == CLEAN
    assert await drained


async def test_a_reload_keeps_requests_in_flight(serve: Serve, guarding: Guarding):
    from evenhand.server.config import make_config

    go_on = asyncio.Event()

    async def later(request):
        await go_on.wait()
        return await chat("From the old one.")(request)

    old, new = await serve(later), await serve(chat("From the new one."))
    guard = await guarding(route(old.url), scorer="builtin")
    first = asyncio.ensure_future(guard.chat())
    await old.has_seen(1)

    late = guard.server.reload(make_config({"routes": {"guarded": route(new.url)}, "page": False}))
    second = await guard.chat()
    go_on.set()

    assert late == ["page"]
    assert second.body["choices"][0]["message"]["content"] == "From the new one."
    assert (await first).body["choices"][0]["message"]["content"] == "From the old one."


async def test_a_bug_of_ours_reads_500_and_tells_nothing(serve: Serve, guarding: Guarding, monkeypatch, caplog):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))
    monkeypatch.setattr("evenhand.server.chat_api.chat.chat_completion", lambda *_: 1 / 0)

    answer = await guard.chat()

    assert answer.status == 500
    assert "division" not in answer.text
    assert "division" in caplog.text


async def test_texts_are_scored_and_counted(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    scored = await guard.post("/v1/moderations", {"input": RUDE})
    assert scored.body["results"][0]["flagged"]
    assert (guard.event.endpoint, guard.event.action) == ("/v1/moderations", "scored")

    comment = {"comment": {"text": RUDE}, "requestedAttributes": {"TOXICITY": {}}}
    analyzed = await guard.post("/v1alpha1/comments:analyze", comment)
    assert analyzed.body["attributeScores"]["TOXICITY"]["summaryScore"]["value"] > 0.5
    wrong = await guard.post("/v1alpha1/comments:analyze", {})
    assert wrong.body["error"]["status"] == "INVALID_ARGUMENT"
    assert [event.status for event in guard.server.events.recent] == [200, 200, 400]


async def test_every_request_reaches_metrics_audit_file_and_page(serve: Serve, guarding: Guarding, tmp_path):
    from evenhand.server.telemetry.audit import read_audit

    behind = await serve(chat(RUDE), chat(CLEAN))
    file = tmp_path / "audit.sqlite"
    guard = await guarding(route(behind.url), audit={"file": str(file), "texts": "full"})

    answer = await guard.chat("What do you think of me?")
    measured = (await guard.get("/metrics")).text
    shown = (await guard.get("/page/state")).body
    assert guard.server.audit is not None
    await asyncio.to_thread(guard.server.audit.close)
    row = next(iter(read_audit(file)))

    assert 'action="revised"' in measured
    assert 'route="guarded"' in measured
    assert len(shown["rows"]) == 1
    assert (row["id"], row["action"]) == (answer.headers["X-Request-Id"], "revised")
    assert (row["first"], row["text"]) == (RUDE, CLEAN)
    guard.server.audit = None  # it is closed


@pytest.mark.parametrize("method", ["default", "stardtox"])
async def test_where_an_endpoint_is_stays_in_the_log(guarding: Guarding, method: str):
    guard = await guarding(route("http://127.0.0.1:9/v1", method=method, evaluators=[]))

    answer = await guard.chat()

    assert answer.status == 502
    assert "127.0.0.1" not in answer.text
    assert "127.0.0.1:9" in guard.event.error
    assert guard.event.upstream_error == "unreachable"
