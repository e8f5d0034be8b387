"""The HTTP client: waits between retries, and the size limit on replies."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from evenhand.core.errors import BadResponseError, EndpointError
from evenhand.core.http import (
    LONGEST_WAIT,
    Client,
    Hints,
    RefusedError,
    RetryPolicy,
    TooLargeError,
    read_lines,
    read_reply,
    retry_after,
)
from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer
from support.fixtures import Serve
from support.server import ChatServer, Reply, raw, refuse, reply_with

LIMIT = 2**20
KEY = "very-secret+key"
FAULT = EndpointError("The endpoint kept answering 429.")


def test_waits_are_spread_over_the_whole_range():
    policy = RetryPolicy(6)

    waits = [policy.delay(3, None, FAULT) for _ in range(500)]

    assert 0 <= min(waits) < 1
    assert 3 < max(waits) <= 4


def test_waits_have_a_ceiling():
    policy = RetryPolicy(100, ceiling=10)

    assert max(policy.delay(90, None, FAULT) for _ in range(100)) <= 10


@pytest.mark.parametrize("asked", [0.0, 0.5, 20.0, LONGEST_WAIT])
def test_a_wait_that_was_asked_for_is_never_shortened(asked: float):
    policy = RetryPolicy(6)

    waits = [policy.delay(1, asked, FAULT) for _ in range(100)]

    assert asked <= min(waits)
    assert max(waits) <= asked + 1
    assert len(set(waits)) > 1


def test_a_wait_that_is_too_long_is_an_error_that_says_so():
    with pytest.raises(EndpointError, match=r"kept answering 429\. It asks for a pause of 3,600 s"):
        RetryPolicy(6).delay(1, 3600.0, FAULT)


def test_no_header_is_no_wish():
    assert retry_after({"content-type": "application/json"}) is None


def test_an_unreadable_header_does_not_hide_a_readable_one():
    assert retry_after({"retry-after-ms": "soon", "retry-after": "3"}) == 3


def test_a_reason_without_a_full_stop_gets_one():
    with pytest.raises(EndpointError, match=r"503: busy\. It asks for a pause"):
        RetryPolicy(6).delay(1, 3600.0, EndpointError("The endpoint kept answering 503: busy"))


Connect = Callable[[ChatServer], Client]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    def make(server: ChatServer) -> Client:
        clients.append(Client(server.url, "The service", KEY, Hints("SERVICE_URL"), retries=2))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.core.http.LARGEST_REPLY", LIMIT)


def compressed(size: int) -> Reply:
    """A JSON string of so many zeros, as gzip."""
    return raw(gzip.compress(b'"%s"' % (b"0" * (size - 2)), 6), headers={"Content-Encoding": "gzip"})


def in_pieces(*pieces: bytes) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return reply


def text(value: Any) -> str:
    return value.strip()


@pytest.mark.parametrize("pack", [lambda size: raw(b'"%s"' % (b"0" * (size - 2))), compressed], ids=["plain", "gzip"])
@pytest.mark.usefixtures("small_limit")
async def test_a_reply_up_to_the_size_limit_is_read_whole(serve: Serve, connect: Connect, pack: Callable[[int], Reply]):
    client = connect(await serve(pack(LIMIT)))

    assert len(await client.post_json({}, text, "text")) == LIMIT - 2


@pytest.mark.parametrize(
    "large",
    [raw(b"0" * (LIMIT + 1)), compressed(LIMIT + 1), in_pieces(*[b"0" * 1000] * 1100), raw(b"0" * (LIMIT + 1), 500)],
    ids=["plain", "gzip", "chunked", "status 500"],
)
@pytest.mark.usefixtures("small_limit")
async def test_a_reply_above_the_size_limit_is_an_error_and_not_retried(
    serve: Serve, connect: Connect, waits: list[float], large: Reply
):
    server = await serve(large)

    with pytest.raises(BadResponseError, match=r"The service sent a reply of more than 1 MiB.*check SERVICE_URL"):
        await connect(server).post_json({}, text, "text")

    assert (len(server.requests), waits) == (1, [])


@pytest.mark.usefixtures("small_limit")
async def test_a_gzip_bomb_is_not_expanded_in_memory(serve: Serve, connect: Connect):
    size = 32 * LIMIT
    client = connect(await serve(compressed(size)))

    tracemalloc.start()
    try:
        with pytest.raises(BadResponseError, match="more than 1 MiB"):
            await client.post_json({}, text, "text")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < size / 4


async def test_a_gigabyte_in_a_megabyte_costs_less_than_50_megabytes_and_the_loop_keeps_turning(
    serve: Serve, connect: Connect
):
    pack = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    head = pack.compress(b'"') + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(b"0" * 2**24) + pack.flush(zlib.Z_FULL_FLUSH)
    client = connect(await serve(raw(head + block * 64, headers={"Content-Encoding": "gzip"})))
    turns = Counter[str]()

    async def turn() -> None:
        while True:
            turns["made"] += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    tracemalloc.start()
    try:
        with pytest.raises(BadResponseError, match="more than 32 MiB"):
            await client.post_json({}, text, "text")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        turning.cancel()

    assert peak < 50e6
    assert turns["made"] > 32  # a reply that is read at one go gives the others no turn


@pytest.mark.parametrize("name", ["perspective", "moderation"])
async def test_scores_of_more_than_a_megabyte_are_no_scores(serve: Serve, monkeypatch: pytest.MonkeyPatch, name: str):
    server = await serve(compressed(2 * 2**20))
    monkeypatch.setenv("PERSPECTIVE_URL", server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)

    async with load_scorer(name) as scorer:
        [found] = await scorer.score(["A text."])

    assert isinstance(found, Unscored)
    assert "more than 1 MiB" in found.reason


@pytest.mark.usefixtures("small_limit")
async def test_the_client_works_on_after_a_reply_that_was_too_large(serve: Serve, connect: Connect):
    client = connect(await serve(compressed(4 * LIMIT), reply_with("fine")))
    with pytest.raises(BadResponseError):
        await client.post_json({}, text, "text")

    assert await client.post_json({}, text, "text") == "fine"
    assert client.limit.in_flight == 0


async def test_lines_are_joined_across_pieces_and_may_be_long(serve: Serve, connect: Connect):
    long = b"x" * 700_000
    server = await serve(in_pieces(b"one\ntw", b"o\n\n", long[:1000], long[1000:] + b"\nlast"))

    response = await connect(server).send(b"{}", stream=True)

    assert [line async for line in read_lines(response)] == [b"one", b"two", long, b"last"]


@pytest.mark.parametrize("piece", [b"0" * 1000, b"data: 0\n" * 100], ids=["one line", "many lines"])
@pytest.mark.usefixtures("small_limit")
async def test_a_stream_above_the_size_limit_ends_with_an_error(serve: Serve, connect: Connect, piece: bytes):
    server = await serve(in_pieces(*[piece] * (LIMIT // len(piece) + 1)))
    response = await connect(server).send(b"{}", stream=True)

    with pytest.raises(TooLargeError):
        async for _ in read_lines(response):
            pass

    assert response.closed


async def test_a_refusal_holds_the_reply_and_neither_form_of_the_key(serve: Serve, connect: Connect):
    server = await serve(refuse(f"wrong: {KEY} or very-secret%2Bkey"))

    with pytest.raises(RefusedError, match=r"answered 400; it rejected the request.*\[key\] or \[key\]") as caught:
        await connect(server).post_json({}, text, "text")

    assert (caught.value.reply.status, caught.value.permanent) == (400, False)
    assert "very-secret" not in str(caught.value)


async def test_a_connection_is_used_again_once_its_reply_is_read(serve: Serve, connect: Connect):
    connections: set[object] = set()

    async def reply(request: web.Request) -> web.Response:
        connections.add(request.transport)
        return web.Response(body=b"a" * 200_000)

    client = connect(await serve(reply))

    replies = [await read_reply(await client.send(b"{}")) for _ in range(3)]

    assert {len(each) for each in replies} == {200_000}
    assert len(connections) == 1
