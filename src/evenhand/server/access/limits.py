"""Concurrency, queue, rate and size limits of one server, and the limits of its keys.

Requests above a limit are answered with 429 and Retry-After. A request's body is read only when the request leaves the
queue, so waiting requests cost almost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import monotonic

from aiohttp import web

from evenhand.core.gate import Gate
from evenhand.server.access.auth import Handler
from evenhand.server.access.quotas import Quotas
from evenhand.server.config import LimitsConfig
from evenhand.server.errors import RequestError
from evenhand.server.state.state import State

LONGEST_WAIT = 30.0
"""Seconds after which a request that is still in the queue is rejected."""
BODY_SECONDS = 30.0
"""Time limit for a client to send its whole request."""


_LIMITS = web.RequestKey("limits", LimitsConfig)


def limits_of(request: web.Request) -> LimitsConfig:
    """Return the limits that were in effect when the request came."""
    return request.get(_LIMITS) or LimitsConfig()


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

    def __init__(self, config: LimitsConfig, state: State | None = None) -> None:
        self.config = config
        self.gate = BoundedGate(config.at_once, config.waiting)
        self.quotas = Quotas(state or State())

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
            request[_LIMITS] = self.config
            lease = await self.quotas.admit(request, self.config.seconds + LONGEST_WAIT + BODY_SECONDS)
            try:
                async with self.gate.turn():
                    await _read(request)
                    return await self._in_time(request, handler)
            finally:
                self.quotas.settle(request, lease)

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
