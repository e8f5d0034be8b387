"""What one server takes on: so many requests at once, so many waiting, so many a minute from each key, so large.

Whoever comes on top is told 429 and when to come again. The body of a request is read only when its turn has come,
so that waiting requests cost next to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import monotonic

from aiohttp import web

from evenhand.server.access.auth import Client, Handler, client_of
from evenhand.server.config import LimitsConfig
from evenhand.server.errors import RequestError

BURST_SECONDS = 10.0
"""A key may send at once what it may send in this time."""
LONGEST_WAIT = 30.0
"""Seconds after which a request that still waits for its turn is turned away."""
BODY_SECONDS = 30.0
"""For a client to send its whole request."""


class Bucket:
    """Tokens that come back at a steady rate; a request takes one."""

    def __init__(self, per_minute: float, burst: float, now: float) -> None:
        self.per_minute = per_minute
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> float:
        """0, or the seconds until there will be a token."""
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_minute / 60)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * 60 / self.per_minute


class Rates:
    """A bucket for every key that has a limit; keys come from the config, so there are never many."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def check(self, client: Client) -> None:
        """Counts a request; raises RequestError (429) when the key has sent too many."""
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


class Gate:
    """Lets so many in at once, has so many wait in line, and turns the rest away."""

    def __init__(self, at_once: int, waiting: int, clock: Callable[[], float] = monotonic) -> None:
        self.at_once = at_once
        self.most_waiting = waiting
        self.inside = 0
        self.turned_away = 0
        self._clock = clock
        self._line: deque[asyncio.Future[None]] = deque()
        self._seconds = 1.0  # how long a request takes, smoothed

    @property
    def waiting(self) -> int:
        return len(self._line)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Waits for room; raises RequestError (429) when the line is full or does not move."""
        if self.inside < self.at_once:
            self.inside += 1
        elif len(self._line) < self.most_waiting:
            await self._wait()
        else:
            raise self._away("This server has as many requests as it can take; try again in a while.")
        began = self._clock()
        try:
            yield
        finally:
            self._seconds += 0.05 * (self._clock() - began - self._seconds)
            self.inside -= 1
            self.let_in()

    def let_in(self) -> None:
        """Hand free room to those who wait, in order; it counts as taken at once."""
        while self._line and self.inside < self.at_once:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                self.inside += 1

    def resize(self, at_once: int, waiting: int) -> None:
        """New limits after a reload; whoever is inside stays."""
        self.at_once, self.most_waiting = at_once, waiting
        self.let_in()

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                await place
        except (asyncio.CancelledError, TimeoutError) as end:
            if place.cancelled():
                with contextlib.suppress(ValueError):
                    self._line.remove(place)
            else:  # room was handed over in the same moment: pass it on
                self.inside -= 1
                self.let_in()
            if isinstance(end, TimeoutError):
                raise self._away("This server could not begin with the request in time; try again later.") from end
            raise

    def _away(self, why: str) -> RequestError:
        self.turned_away += 1
        line = (len(self._line) + 1) * self._seconds / self.at_once
        return RequestError(429, why, code="server_busy", retry_after=min(60.0, line))


class Limits:
    """The limits of one server, as a middleware for requests that cost something."""

    def __init__(self, config: LimitsConfig) -> None:
        self.config = config
        self.gate = Gate(config.at_once, config.waiting)
        self.rates = Rates()

    def reload(self, config: LimitsConfig) -> None:
        self.config = config
        self.gate.resize(config.at_once, config.waiting)

    def middleware(self) -> Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]:
        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method != "POST":  # reading models, metrics or the page costs nothing
                return await handler(request)
            self._check_size(request)
            self.rates.check(client_of(request))
            async with self.gate.turn():
                await _read(request)
                return await self._in_time(request, handler)

        return check

    def _check_size(self, request: web.Request) -> None:
        """What is too large is refused before it is read; a body without a length is watched by the framework."""
        if (request.content_length or 0) > self.config.body_mb * 1e6:
            raise RequestError(
                413, f"The request is larger than the {self.config.body_mb:g} MB that this server takes."
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
    """Reads the body, which the handler then finds read."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            await request.read()
    except TimeoutError as error:
        raise RequestError(408, f"The request did not arrive within {BODY_SECONDS:g} s.") from error
