"""The limits of a server and of each of its keys, as a middleware; above a limit the answer is 429 with Retry-After.

A server has limits of concurrency, queue, time and size. A request's body is read only when the request leaves the
queue, so waiting requests cost almost nothing.

A key has requests per minute, requests at once, and budgets of tokens and money. A request may start while what the key
has spent, and what its requests in flight have reserved, is below the budget. It reserves an estimate: the key's
average, at least the tokens of its body. A budget can therefore be exceeded only by the last request that starts, and
by what the requests in flight spend beyond their estimates.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from itertools import count
from time import monotonic, time

from aiohttp import web

from evenhand.core.limiter import Gate
from evenhand.server.access import caller_of, right_needed
from evenhand.server.config import LimitsConfig
from evenhand.server.state.state import State
from evenhand.server.state.types import Admission, Admit, Lease, Settle, renewal
from evenhand.server.ticket import ticket_of
from evenhand.web.errors import RequestError
from evenhand.web.keys import Caller, Handler, Quota

FIRST_REPLY = 512
"""Tokens that are reserved for a reply while the key has no average yet."""
BUSY_SECONDS = 1.0
"""Retry-After if requests in flight hold all places or the rest of the budget."""
PAUSES = (0.05, 0.1, 0.2)
"""Seconds between tries of a request that has no place: another process may have released one just now."""
_SMOOTHING = 0.1
_PERIODS = {"day": " a day", "month": " a month", "total": ""}
_HEADERS = web.RequestKey("rate_limit_headers", dict[str, str])
LONGEST_WAIT = 30.0
"""Seconds after which a request that is still in the queue is rejected."""
BODY_SECONDS = 30.0
"""Time limit for a client to send its whole request."""
_LIMITS = web.RequestKey("limits", LimitsConfig)


class Quotas:
    """Admits and settles the requests of keys; `prices` are what a token of each key costs at most."""

    def __init__(self, state: State) -> None:
        self.prices: Mapping[str, float] = {}
        self.turned_away = 0
        self._state = state
        self._usual: dict[str, float] = {}
        """Key → the average tokens of its requests."""
        self._ids = (f"{secrets.token_hex(6)}-{number}" for number in count())

    async def admit(self, request: web.Request, seconds: float) -> Lease | None:
        """Return what the request holds until it is settled; raises RequestError (429) if it may not start.

        `seconds` is the longest time that a request can take.
        """
        client = caller_of(request)
        if client.quota is None:
            return None
        spends = right_needed(request.path) is None
        quota = client.quota if spends else Quota(client.quota.per_minute, client.quota.at_once)
        tokens = self._estimate(client, request.content_length or 0) if spends else 0.0
        now = time()
        lease = Lease(next(self._ids), now + seconds, tokens, tokens * self.prices.get(client.name, 0.0))
        verdict = await self._state.admit(Admit(client.name, quota, lease, now))
        for pause in PAUSES if self._state.is_shared else ():
            if verdict.refused not in ("at_once", "reserved"):
                break
            await asyncio.sleep(pause)
            verdict = await self._state.admit(Admit(client.name, quota, lease, time()))
        request[_HEADERS] = headers(quota, verdict, now)
        if verdict.refused:
            self.turned_away += 1
            raise refusal(quota, verdict, now)
        return lease

    def settle(self, request: web.Request, lease: Lease | None) -> None:
        """Count what a request spent, whether it succeeded or not."""
        client, used = caller_of(request), ticket_of(request).meter.usage
        if not client.name or (lease is None and not used.tokens):
            return
        self._state.settle(Settle(client.name, lease, used.tokens, used.cost or 0.0, time()))
        if used.tokens:
            usual = self._usual.get(client.name, used.tokens)
            self._usual[client.name] = usual + _SMOOTHING * (used.tokens - usual)

    def _estimate(self, client: Caller, body_bytes: int) -> float:
        prompt = body_bytes / 4
        return max(prompt, self._usual.get(client.name, prompt + FIRST_REPLY))


def refusal(quota: Quota, verdict: Admission, now: float) -> RequestError:
    """Return the error for a request that may not start."""
    match verdict.refused:
        case "tokens":
            return _used_up(f"{quota.tokens:,} tokens", quota, now)
        case "money":
            return _used_up(f"{quota.money:g} in money", quota, now)
        case "at_once":
            message, wait = f"This key may have {quota.at_once} requests at once.", BUSY_SECONDS
        case "reserved":
            message, wait = "The requests of this key in flight may use up the rest of its budget.", BUSY_SECONDS
        case _:
            message, wait = f"This key may send {quota.per_minute:g} requests a minute.", verdict.wait
    return RequestError(429, message, code="rate_limit_exceeded", retry_after=wait)


def _used_up(amount: str, quota: Quota, now: float) -> RequestError:
    renews = renewal(quota.per, now)
    when = f"It renews on {renews:%Y-%m-%d} at 00:00 UTC." if renews else "It does not renew."
    return RequestError(
        429,
        f"This key has used up its budget of {amount}{_PERIODS[quota.per]}. {when}",
        kind="insufficient_quota",
        code="insufficient_quota",
        retry_after=renews.timestamp() - now if renews else None,
    )


def headers(quota: Quota, verdict: Admission, now: float) -> dict[str, str]:
    """Return what is left, in the headers that OpenAI's clients read."""
    found: dict[str, str] = {}
    if quota.per_minute is not None:
        full = (quota.burst - verdict.requests) * 60 / quota.per_minute
        found |= _header("requests", quota.per_minute, verdict.requests, full)
    if quota.tokens is not None:
        renews = renewal(quota.per, now)
        left = max(0.0, quota.tokens - verdict.tokens)
        found |= _header("tokens", quota.tokens, left, renews.timestamp() - now if renews else None)
    if verdict.refused in ("tokens", "money"):
        found["x-should-retry"] = "false"
    return found


def _header(name: str, limit: float, left: float, reset: float | None) -> dict[str, str]:
    found = {f"x-ratelimit-limit-{name}": f"{limit:.15g}", f"x-ratelimit-remaining-{name}": str(math.floor(left))}
    if reset is not None:
        found[f"x-ratelimit-reset-{name}"] = duration(reset)
    return found


def duration(seconds: float) -> str:
    """Return a time as OpenAI writes it: 120ms, 6s, 1m30s, 7h12m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else "") + f"{rest}s"


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the rate limit headers to any response of a limited key."""
    if found := request.get(_HEADERS):
        response.headers.update(found)


def limits_of(request: web.Request) -> LimitsConfig:
    """Return the limits that were in effect when the request came."""
    return request.get(_LIMITS) or LimitsConfig()


class BoundedGate(Gate):
    """A concurrency limit with a bounded queue; what does not fit is rejected with 429."""

    def __init__(self, size: int, most_waiting: int) -> None:
        super().__init__(size)
        self.most_waiting = most_waiting
        self.turned_away = 0
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
        began = monotonic()
        try:
            yield
        finally:
            self._seconds += 0.05 * (monotonic() - began - self._seconds)
            self.release()

    def _rejection(self, why: str) -> RequestError:
        self.turned_away += 1
        wait = (self.waiting + 1) * self._seconds / self.size
        return RequestError(429, why, code="server_busy", retry_after=min(60.0, wait))


class ServerLimits:
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
            # Only here: no reload can change the limit that aiohttp takes from the application.
            request._client_max_size = int(self.config.body_mb * 1e6)  # pyright: ignore[reportPrivateUsage]
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
