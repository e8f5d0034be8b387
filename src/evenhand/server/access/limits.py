"""Concurrency, queue, rate and size limits of one server.

Requests above a limit are answered with 429 and Retry-After. A request's body is read only when the request leaves the
queue, so waiting requests cost almost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import monotonic

from aiohttp import web

from evenhand.gate import Gate
from evenhand.server.access.auth import Client, Handler, client_of
from evenhand.server.config import LimitsConfig
from evenhand.server.errors import RequestError

BURST_SECONDS = 10.0
"""The burst of a key: as many requests as its rate allows in this time."""
LONGEST_WAIT = 30.0
"""Seconds after which a request that is still in the queue is rejected."""
BODY_SECONDS = 30.0
"""Time limit for a client to send its whole request."""


class Bucket:
    """A token bucket: refilled at a steady rate, one token per request."""

    def __init__(self, per_minute: float, burst: float, now: float) -> None:
        self.per_minute = per_minute
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> float:
        """0, or the seconds until the next token."""
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_minute / 60)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * 60 / self.per_minute


class Rates:
    """A token bucket for every key that has a rate limit; keys come from the config, so there are never many."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def check(self, client: Client) -> None:
        """Counts a request; raises RequestError (429) when the key exceeds its rate."""
        if client.per_minute is None:
            return
        burst = max(1.0, client.per_minute * BURST_SECONDS / 60)
        bucket = self._buckets.get(client.name)
        if bucket is None or bucket.per_minute != client.per_minute:  # new, or reloaded
            bucket = self._buckets[client.name] = Bucket(client.per_minute, burst, self._clock())
        if wait := bucket.take(self._clock()):
            raise RequestError(
                429,
                f"This key may send {client.per_minute:g} requests a minute.",
                code="rate_limit_exceeded",
                retry_after=wait,
            )


class BoundedGate(Gate):
    """A concurrency limit with a bounded queue; what does not fit is rejected with 429."""

    def __init__(self, size: int, most_waiting: int, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(size)
        self.most_waiting = most_waiting
        self.turned_away = 0
        self._clock = clock
        self._seconds = 1.0  # how long a request takes, smoothed

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Waits for a place; raises RequestError (429) when the queue is full or the wait is too long."""
        if self.is_full and self.waiting >= self.most_waiting:
            raise self._rejection("This server is at its concurrency limit and its queue is full; try again later.")
        try:
            async with asyncio.timeout(LONGEST_WAIT) if self.is_full else contextlib.nullcontext():
                await self.acquire()
        except TimeoutError as error:
            raise self._rejection("This server could not start the request in time; try again later.") from error
        began = self._clock()
        try:
            yield
        finally:
            self._seconds += 0.05 * (self._clock() - began - self._seconds)
            self.release()

    def _rejection(self, why: str) -> RequestError:
        self.turned_away += 1
        wait = (self.waiting + 1) * self._seconds / self.size
        return RequestError(429, why, code="server_busy", retry_after=min(60.0, wait))


class Limits:
    """The limits of one server, as a middleware for POST requests."""

    def __init__(self, config: LimitsConfig) -> None:
        self.config = config
        self.gate = BoundedGate(config.at_once, config.waiting)
        self.rates = Rates()

    def reload(self, config: LimitsConfig) -> None:
        self.config = config
        self.gate.most_waiting = config.waiting
        self.gate.resize(config.at_once)

    def middleware(self) -> Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]:
        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method != "POST":  # models, metrics and the page cost nothing
                return await handler(request)
            self._check_size(request)
            self.rates.check(client_of(request))
            async with self.gate.turn():
                await _read(request)
                return await self._in_time(request, handler)

        return check

    def _check_size(self, request: web.Request) -> None:
        """Rejects a too large body before it is read; aiohttp checks a body without Content-Length while reading it."""
        if (request.content_length or 0) > self.config.body_mb * 1e6:
            raise RequestError(
                413, f"The request is larger than the {self.config.body_mb:g} MB that this server accepts."
            )

    async def _in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self.config.seconds):
                return await handler(request)
        except TimeoutError as error:
            raise RequestError(
                504, f"The answer took longer than the {self.config.seconds:g} s that this server allows."
            ) from error


async def _read(request: web.Request) -> None:
    """Reads the body; the handler gets it from the request's cache."""
    try:
        async with contextlib.nullcontext() if request.content.is_eof() else asyncio.timeout(BODY_SECONDS):
            await request.read()
    except TimeoutError as error:
        raise RequestError(408, f"The request did not arrive within {BODY_SECONDS:g} s.") from error
