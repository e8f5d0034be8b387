"""Limits, with real requests: rates by key, the line and who finds it full, sizes and times."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from evenhand.server import limits as limits_module
from evenhand.server.access import auth_middleware
from evenhand.server.config import LimitsConfig
from evenhand.server.limits import BoundedGate, ServerLimits
from evenhand.web.errors import RequestError
from evenhand.web.keys import Auth, KeyConfig, new_key
from support.small_app import serving


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as made:
        yield made


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def test_a_key_that_sends_too_much_is_told_when_to_come_again(session: aiohttp.ClientSession):
    key, digest = new_key()
    auth = Auth({"team": KeyConfig(hash=digest, per_minute=12)}, "127.0.0.1")
    parts = (auth_middleware(lambda: auth), ServerLimits(LimitsConfig()).middleware())
    async with serving([web.post("/v1/x", echo), web.get("/v1/models", echo)], *parts) as (url, _):
        asked: dict[str, Any] = {"headers": {"Authorization": f"Bearer {key}"}}
        statuses: list[int] = []
        for _ in range(3):
            async with session.post(f"{url}/v1/x", **asked) as response:
                statuses.append(response.status)
        assert statuses == [200, 200, 429]
        assert 1 <= int(response.headers["Retry-After"]) <= 5
        async with session.get(f"{url}/v1/models", **asked) as response:  # costs nothing
            assert response.status == 200


async def test_a_full_line_turns_away_and_the_others_get_their_turn(session: aiohttp.ClientSession):
    go = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await go.wait()
        return web.Response()

    limits = ServerLimits(LimitsConfig(at_once=2, waiting=3))
    async with serving([web.post("/v1/x", slow)], limits.middleware()) as (url, _):

        async def ask() -> tuple[int, str | None]:
            async with session.post(f"{url}/v1/x", data=b"x") as response:
                return response.status, response.headers.get("Retry-After")

        asked = [asyncio.ensure_future(ask()) for _ in range(7)]
        refused = [await each for each in (await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED))[0]]
        while len(refused) < 2:
            done, _ = await asyncio.wait(
                [each for each in asked if not each.done()], return_when=asyncio.FIRST_COMPLETED
            )
            refused += [await each for each in done]
        assert refused == [(429, "2"), (429, "2")]
        assert (limits.gate.in_flight, limits.gate.waiting, limits.gate.turned_away) == (2, 3, 2)
        go.set()
        assert sorted(status for status, _ in await asyncio.gather(*asked)) == [200] * 5 + [429] * 2
    assert (limits.gate.in_flight, limits.gate.waiting) == (0, 0)


async def test_the_line_is_served_in_order_and_survives_those_who_leave():
    gate = BoundedGate(1, 10)
    order: list[int] = []

    async def enter(number: int) -> None:
        async with gate.turn():
            order.append(number)

    async with gate.turn():
        tasks = [asyncio.ensure_future(enter(number)) for number in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)

    assert order == [0, 2, 3]
    assert (gate.in_flight, gate.waiting) == (0, 0)


async def test_room_that_comes_together_with_a_cancellation_is_passed_on():
    gate = BoundedGate(1, 10)
    entered = asyncio.Event()

    async def enter() -> None:
        async with gate.turn():
            entered.set()

    async with gate.turn():
        leaving, next_one = asyncio.ensure_future(enter()), asyncio.ensure_future(enter())
        await asyncio.sleep(0)
    leaving.cancel()  # its turn has come in the line above
    await asyncio.gather(leaving, next_one, return_exceptions=True)

    assert entered.is_set()
    assert gate.in_flight == 0


async def test_whoever_waits_too_long_is_turned_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits_module, "LONGEST_WAIT", 0.01)
    gate = BoundedGate(1, 10)

    async with gate.turn():
        with pytest.raises(RequestError) as caught:
            async with gate.turn():
                pass

    assert caught.value.status == 429
    assert (gate.in_flight, gate.waiting) == (0, 0)


async def test_a_reload_lets_more_in_at_once():
    limits = ServerLimits(LimitsConfig(at_once=1, waiting=5))
    async with limits.gate.turn():
        waiting = asyncio.ensure_future(limits.gate.turn().__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done()
        limits.reload(LimitsConfig(at_once=2, waiting=5))
        await waiting
        assert limits.gate.in_flight == 2


async def test_a_request_that_is_too_large_is_refused_before_and_while_it_is_read(session: aiohttp.ClientSession):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 1000

    limits = ServerLimits(LimitsConfig(body_mb=0.01))
    async with serving([web.post("/v1/x", echo)], limits.middleware(), size=10_000) as (url, _):
        async with session.post(f"{url}/v1/x", data=b"x" * 9_999) as response:
            assert response.status == 200
        async with session.post(f"{url}/v1/x", data=b"x" * 20_000) as response:
            assert response.status == 413
            assert "0.01 MB" in (await response.json())["error"]["message"]
        async with session.post(f"{url}/v1/x", data=chunks()) as response:
            assert response.status == 413


@pytest.mark.parametrize(("before", "after", "statuses"), [(0.01, 0.02, (413, 200)), (0.02, 0.01, (200, 413))])
@pytest.mark.parametrize("announced", [True, False])
async def test_a_reload_changes_the_largest_request(
    session: aiohttp.ClientSession, before: float, after: float, statuses: tuple[int, int], announced: bool
):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(15):
            yield b"x" * 1000

    limits = ServerLimits(LimitsConfig(body_mb=before))
    async with serving([web.post("/v1/x", echo)], limits.middleware(), size=10_000) as (url, _):
        for config, status in ((before, statuses[0]), (after, statuses[1])):
            limits.reload(LimitsConfig(body_mb=config))
            async with session.post(f"{url}/v1/x", data=b"x" * 15_000 if announced else chunks()) as response:
                assert response.status == status


async def test_a_client_that_does_not_send_its_request_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits_module, "BODY_SECONDS", 0.01)
    limits = ServerLimits(LimitsConfig())
    async with serving([web.post("/v1/x", echo)], limits.middleware()) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf")
        assert b" 408 " in await reader.readline()
        writer.close()
    assert limits.gate.in_flight == 0


async def test_an_answer_that_takes_too_long_is_given_up(session: aiohttp.ClientSession):
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    limits = ServerLimits(LimitsConfig(seconds=0.01))
    async with (
        serving([web.post("/v1/x", never)], limits.middleware()) as (url, _),
        session.post(f"{url}/v1/x") as response,
    ):
        assert response.status == 504
        assert (await response.json())["error"]["type"] == "timeout_error"
