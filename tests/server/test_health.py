"""Health and readiness: what load balancers see at start, in trouble and at the end."""

from dataclasses import replace

import aiohttp

from evenhand.core.types import Usage
from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.health import FAILURES, Health
from support.small_app import serving

FAILED = Event("r1", 0.0, "chat", "/v1/chat/completions", status=502, upstream_error="unreachable")
ANSWERED = replace(FAILED, status=200, upstream_error="", usage=Usage(calls=1))


async def test_a_server_is_alive_always_and_ready_between_start_and_end():
    health = Health()
    async with serving(health.routes()) as (url, _), aiohttp.ClientSession(url) as session:

        async def status(path: str) -> int:
            async with session.get(path) as response:
                return response.status

        assert (await status("/healthz"), await status("/readyz")) == (200, 503)
        health.ready(["chat"])
        assert (await status("/healthz"), await status("/readyz")) == (200, 200)
        health.drain()
        assert (await status("/healthz"), await status("/readyz")) == (200, 503)


async def test_a_failing_endpoint_is_told_without_its_name():
    health = Health(lambda: [True, False, False])
    health.ready(["secret-project", "chat"])
    for _ in range(FAILURES):
        health(FAILED)

    async with (
        serving(health.routes()) as (url, _),
        aiohttp.ClientSession(url) as session,
        session.get("/readyz") as response,
    ):
        assert response.status == 200  # without requests nobody would learn that it is back
        assert await response.json() == {
            "status": "ready",
            "routes": 2,
            "failing": 1,
            "upstreams": 3,
            "upstreams_open": 1,
        }


def test_a_route_fails_after_some_failures_in_a_row_and_recovers_with_one_answer():
    health = Health()
    health.ready(["chat"])

    for event in (FAILED, FAILED, ANSWERED, FAILED, FAILED):
        health(event)
    assert health.failing == []
    health(replace(FAILED, status=400, upstream_error=""))  # refused before the endpoint was asked: says nothing
    health(FAILED)
    assert health.failing == ["chat"]
    health(ANSWERED)
    assert health.failing == []


def test_an_endpoint_that_refuses_bad_requests_does_not_fail():
    health = Health()
    health.ready(["chat"])

    for _ in range(FAILURES):
        health(replace(FAILED, status=400, upstream_error="400"))

    assert health.failing == []


def test_a_reload_forgets_routes_that_are_gone_and_unknown_ones_are_never_kept():
    health = Health()
    health.ready(["chat", "old"])
    for _ in range(FAILURES):
        health(FAILED)
        health(replace(FAILED, route="old"))
        health(replace(FAILED, route="unknown"))

    health.ready(["chat", "new"])

    assert health.failing == ["chat"]
