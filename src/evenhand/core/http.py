"""The HTTP client of models, scorers, guard upstreams and Wikipedia.

One pooled session per endpoint, with timeouts, retries, an adaptive concurrency limit and a size limit on replies.
Failures become errors that say what to check; no message holds the API key.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import math
import os
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver

from evenhand.core.errors import BadResponseError, EndpointError, ModelError, UsageError
from evenhand.core.events import holding, repeated, retried
from evenhand.core.limiter import AdaptiveLimit
from evenhand.core.tracing import traceparent

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[object]]
Clock = Callable[[], float]

CONNECT_TIMEOUT = 60.0
LONGEST_WAIT = 300.0
"""Seconds; an endpoint whose Retry-After is longer counts as down."""
LARGEST_REPLY = 32 * 2**20
"""The largest reply or stream in bytes, after decompression; reading stops there. Replies of 4,096 tokens with 20
alternatives each have 8 MB."""
LARGEST_SCORES = 2**20
"""The same for replies that hold scores only."""
_LONG = 2**20
"""Larger replies are decompressed in a thread: doing it here would block other tasks."""
_REFUSED = (400, 413, 422)
"""Statuses that reject one request; other requests may succeed."""
_OVERLOADED = (429, 503, 529)
"""Statuses of an endpoint that gets more requests than it can answer."""
_TRANSIENT = (408, 409, 425)
"""Statuses worth a retry, besides 429 and 5xx."""


class TooLargeError(aiohttp.ClientPayloadError):
    """A reply exceeds the size limit."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"more than {largest / 2**20:g} MiB")


class RefusedError(EndpointError):
    """The endpoint rejects the content of this request; other requests may succeed."""

    request_at_fault = True

    def __init__(self, message: str, reply: Reply) -> None:
        super().__init__(message)
        self.reply = reply


class Retryable(Exception):  # noqa: N818 - a signal to the retry loop, not an error for users
    """A failed attempt that is worth a retry; `error` is raised once `max_retries` retries have failed, too."""

    def __init__(self, error: ModelError, wait: float | None = None, max_retries: float = float("inf")) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait
        self.max_retries = max_retries


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter; a Retry-After of the server is respected, plus jitter."""

    retries: int
    base: float = 0.5
    ceiling: float = 30.0

    def delay(self, failures: int, retry_after: float | None, error: ModelError) -> float:
        """Return the seconds to wait before attempt number `failures` + 1."""
        if retry_after is None:
            return random.uniform(0, min(self.ceiling, self.base * 2**failures))
        if retry_after > LONGEST_WAIT:
            reason = str(error).rstrip(".")
            raise EndpointError(
                f"{reason}. It asks for a pause of {retry_after:,.0f} s; resume the run after that."
            ) from error
        return retry_after + random.uniform(0, min(1.0, 0.1 * retry_after + self.base / 10))


class Pace:
    """A rate limit: one request every `gap` seconds, first come, first served."""

    def __init__(self, gap: float, sleep: Sleep | None = None, clock: Clock = time.monotonic) -> None:
        self.gap = gap
        self._sleep = sleep or asyncio.sleep
        self._clock = clock
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next free time slot; it is reserved before the wait, so that two callers never share one."""
        now = self._clock()
        start = max(now, self._next)
        self._next = start + self.gap
        if start > now:
            await self._sleep(start - now)


@dataclass(frozen=True, slots=True)
class Hints:
    """What error messages tell the user to check."""

    url: str
    """The option or environment variable that holds the address."""
    statuses: Mapping[int, str] = field(default_factory=dict[int, str])
    """HTTP status → what to do about it, where checking the address is not enough."""
    timeout: str = ""
    """What to do after a timeout."""


VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
"""An environment variable in an address or a header."""


def expanded(text: str, owner: str) -> tuple[str, dict[str, str]]:
    """Return an address or a header with its environment variables, and their values."""
    values: dict[str, str] = {}

    def put(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not (found := os.environ.get(name, "").strip()):
            raise UsageError(f"{owner} needs the environment variable {name}, which is not set.")
        return values.setdefault(match[0], found)

    return VARIABLE.sub(put, text), values


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """A client of one endpoint; `title` names it in messages. Safe to call concurrently and after `aclose`.

    Environment variables in the address, such as `$MY_KEY`, are filled in when a request is sent.
    """

    def __init__(
        self,
        url: str,
        title: str,
        key: str,
        hints: Hints,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        concurrency: int = 8,
        per_second: float | None = None,
        largest: int | None = None,
        method: str = "POST",
        secrets: Iterable[str] = (),
    ) -> None:
        self.url = url
        self._method = method
        self._largest = largest
        self.title = title
        self.limit = AdaptiveLimit(concurrency)
        self.worked = False
        """Whether this endpoint has ever sent a usable reply."""
        self._hints = hints
        self._in_address = expanded(url, title)[1]
        hidden = (key, *secrets, *self._in_address.values())
        self._secrets = {form for each in hidden for form in (each, quote(each, safe=""))} - {""}
        self._headers = {"Content-Type": "application/json", "User-Agent": "evenhand", **(headers or {})}
        self._query = query or None
        self._policy = RetryPolicy(retries)
        self._pace = Pace(1 / per_second) if per_second else None
        self._timeout = aiohttp.ClientTimeout(
            total=CONNECT_TIMEOUT + timeout, sock_connect=CONNECT_TIMEOUT, sock_read=timeout
        )
        # A stream has no time limit as long as data keeps arriving.
        self._stream_timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=timeout)
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        """By event loop: in a notebook, the same model may be awaited and called synchronously."""

    async def post(
        self,
        body: Callable[[], bytes],
        read: Callable[[Reply], T],
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> tuple[T, int]:
        """Post a request and return the result of `read(reply)`, with the number of retries.

        `body` is called once the concurrency limit admits the request. `read` gets replies of any status; it raises
        Retryable for another attempt, and `self.fault(reply)` for an unexpected status.
        """

        async def attempt() -> T:
            async with self.limit as epoch:
                if self._pace is not None:
                    await self._pace.turn()
                try:
                    response = await self.send(body(), headers=headers, query=query)
                    reply = Reply(response.status, response.headers, await read_reply(response, self._largest))
                except (aiohttp.ClientError, OSError) as error:
                    if isinstance(error, TimeoutError):
                        self.limit.push_back(epoch)
                    raise self._no_reply(error) from error
                if reply.status in _OVERLOADED:
                    self.limit.push_back(epoch)
                result = read(reply)
                self.worked = True
                self.limit.succeeded()
                return result

        return await self.retry(attempt)

    async def post_json(self, body: Mapping[str, Any], read: Callable[[Any], T], what: str) -> T:
        """Post JSON and return `read(reply's JSON)`; an unusable reply is retried once. `what` names the content.

        Raises EndpointError (permanent if every request would fail), RefusedError or BadResponseError.
        """
        data = orjson.dumps(body)

        def parse(reply: Reply) -> T:
            if reply.status != 200:
                raise self.fault(reply)
            try:
                value = orjson.loads(reply.body)
            except ValueError as error:
                message = f"{self.title} did not send JSON but {self.excerpt(reply.body)!r}"
                raise Retryable(BadResponseError(message), max_retries=1) from error
            try:
                return read(value)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                why = f"{error} is missing" if isinstance(error, KeyError) else self.redact(str(error))
                message = f"{self.title} sent no usable {what}: {why}"
                raise Retryable(BadResponseError(message), max_retries=1) from error

        return (await self.post(lambda: data, parse))[0]

    async def call(
        self,
        method: str,
        url: str,
        data: bytes | None = None,
        content_type: str = "application/json",
        *,
        into: IO[bytes] | None = None,
        once: bool = False,
    ) -> bytes:
        """Make another call of the same API and return the body; `into` takes one of any size, `once`: no retries."""
        start = into.tell() if into is not None else 0

        async def attempt() -> bytes:
            try:
                response = await self.send(data, url, method=method, headers={"Content-Type": content_type})
                if into is None or response.status != 200:
                    reply = Reply(response.status, response.headers, await read_reply(response, self._largest))
                else:
                    into.seek(start)
                    into.truncate()
                    async with response:
                        async for chunk in response.content.iter_any():
                            into.write(chunk)
                    reply = Reply(200, response.headers, b"")
            except (aiohttp.ClientError, OSError) as error:
                raise self._no_reply(error) from error
            if reply.status != 200:
                raise self.fault(reply)
            self.worked = True
            return reply.body

        if not once:
            return (await self.retry(attempt))[0]
        try:
            return await attempt()
        except Retryable as fault:
            raise fault.error from fault

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Call `attempt` until it succeeds; return its result and the number of retries."""
        failures = 0
        while True:
            try:
                return await attempt(), failures
            except Retryable as fault:
                failures += 1
                if failures > min(self._policy.retries, fault.max_retries):
                    raise fault.error from fault
                wait = self._policy.delay(failures, fault.wait, fault.error)
                retried(str(fault.error), wait)
                with holding():
                    await asyncio.sleep(wait)
                    await repeated(fault.error)

    async def send(
        self,
        data: bytes | None,
        url: str | None = None,
        *,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> aiohttp.ClientResponse:
        """Send one request and return the unread response, for `read_reply` or `read_lines`."""
        session = self._sessions.get(asyncio.get_running_loop()) or self._open()
        address = url or self.url
        for name, value in self._in_address.items():
            address = address.replace(name, quote(value, safe=""))
        traced = {"traceparent": parent} if (parent := traceparent()) else None
        return await session.request(
            method or self._method,
            address,
            data=data,
            params=query or self._query,
            headers={**headers, **(traced or {})} if headers else traced,
            timeout=self._stream_timeout if stream else self._timeout,
            allow_redirects=False,  # a redirect could send the key to another host
        )

    async def aclose(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for loop, session in sessions.items():
            if loop is asyncio.get_running_loop():
                await session.close()
            elif loop.is_running():  # not awaited: that loop may be waiting for this one
                asyncio.run_coroutine_threadsafe(session.close(), loop)

    def fault(self, reply: Reply) -> Exception:
        """Return the exception for a status other than 200: an error, or Retryable."""
        status, said, hints = reply.status, self.excerpt(reply.body), self._hints
        if status == 429 and b"insufficient_quota" in reply.body:
            return EndpointError(
                f"{self.title} reports that the quota is used up; check the account's billing.", permanent=True
            )
        if status == 429:
            fix = hints.statuses.get(429, "it accepts no more requests for now")
            return Retryable(EndpointError(f"{self.title} kept answering 429; {fix}."), retry_after(reply.headers))
        if status in _TRANSIENT or status >= 500:
            return Retryable(EndpointError(f"{self.title} kept answering {status}: {said}"), retry_after(reply.headers))
        fix = f"check {hints.url}" if status in (404, 405) else "it rejected the request"
        fix = hints.statuses.get(status, fix)
        if 300 <= status < 400:
            fix = f"it redirects to {self.redact(reply.headers.get('Location', 'nowhere'))}; check {hints.url}"
        message = f"{self.title} answered {status}; {fix}." + (f" It said: {said}" if said else "")
        return RefusedError(message, reply) if status in _REFUSED else EndpointError(message, permanent=True)

    def excerpt(self, payload: bytes, most: int = 400) -> str:
        """Return the start of a reply as one line; the key is removed before the cut, so that no part of it stays."""
        text = self.redact(payload.decode("utf-8", "replace"))
        return " ".join(text[: 2 * most].split())[:most]

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return text

    def _no_reply(self, error: aiohttp.ClientError | OSError) -> Exception:
        """Return the exception for a missing or broken reply; an address that never worked gets few retries."""
        where = self._hints.url
        if isinstance(error, TooLargeError):
            return BadResponseError(f"{self.title} sent a reply of {error}, which is too large; check {where}.")
        if isinstance(error, (aiohttp.ClientConnectorDNSError, aiohttp.InvalidURL)) and not self.worked:
            return EndpointError(f"{self.title} does not exist; check {where}.", permanent=True)
        text = self.redact(str(error) or type(error).__name__)
        message = f"{self.title} cannot be reached ({text}); is the server up? Is {where} right?"
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)) and not self.worked:
            return Retryable(EndpointError(message, permanent=True), max_retries=2)
        if isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
            message = f"{self.title} broke off its reply ({text})."
        if isinstance(error, TimeoutError):
            hint = f"; {self._hints.timeout}" if self._hints.timeout else ""
            message = f"{self.title} did not answer in time{hint}."
        fault = EndpointError(message)
        answered = isinstance(error, (TimeoutError, aiohttp.ClientPayloadError))
        fault.was_read = answered and not isinstance(error, aiohttp.ConnectionTimeoutError)
        return Retryable(fault)

    def _open(self) -> aiohttp.ClientSession:
        session = self._sessions[asyncio.get_running_loop()] = open_session(self._headers, self._timeout)
        return session


def open_session(
    headers: Mapping[str, str], timeout: aiohttp.ClientTimeout, resolver: AbstractResolver | None = None
) -> aiohttp.ClientSession:
    """Open a session without cookies and without a connection limit of its own: the only place that opens one.

    Args:
        resolver: Checks the addresses of hosts that others name, for every connection: there is no DNS cache and no
            proxy then, and replies stay compressed, so that their size can be bounded while they are unpacked.
    """
    if resolver is not None:
        return aiohttp.ClientSession(
            headers=headers,
            timeout=timeout,
            trust_env=False,
            connector=aiohttp.TCPConnector(limit=0, resolver=resolver, use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
    # A proxy look-up costs as much as a call, so it is made only if a proxy is configured.
    proxied = any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"))
    return aiohttp.ClientSession(
        headers=headers,
        timeout=timeout,
        trust_env=proxied,
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def read_reply(response: aiohttp.ClientResponse, largest: int | None = None) -> bytes:
    """Read the whole body, in chunks: `response.read()` would decompress a body of any size."""
    chunks: list[bytes] = []
    size = 0
    async with response:
        while chunk := await response.content.readany():
            chunks.append(chunk)
            size = await _bounded(response, size + len(chunk), largest or LARGEST_REPLY)
    return b"".join(chunks)


async def read_lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Yield the lines of a stream as they arrive, without empty ones; the size limit is on their total."""
    begun: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size = await _bounded(response, size + len(chunk), LARGEST_REPLY)
        head, *others = chunk.split(b"\n")
        begun.append(head)
        if not others:
            continue
        if line := b"".join(begun):
            yield line
        begun = [others.pop()]
        for line in filter(None, others):
            yield line
    if line := b"".join(begun):
        yield line


async def _bounded(response: aiohttp.ClientResponse, size: int, largest: int) -> int:
    """Return the size so far if it is allowed; reading a long reply gives other tasks their turn."""
    if size > largest:
        response.close()
        raise TooLargeError(largest)
    if size > _LONG:
        await asyncio.sleep(0)
    return size


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the Retry-After header asks for, if there is one."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        with contextlib.suppress(ValueError):
            seconds = float(value) * scale
            return max(0.0, seconds) if math.isfinite(seconds) else None
        with contextlib.suppress(ValueError):
            date = email.utils.parsedate_to_datetime(value)
            return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    return None
