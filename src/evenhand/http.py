"""The HTTP client of models, scorers and guard upstreams.

One pooled session per endpoint, with timeouts, retries, an adaptive concurrency limit and a size limit on replies.
Failures become errors that say what to check; no message holds the API key.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import orjson

from evenhand.errors import BadResponseError, EndpointError, ModelError
from evenhand.gate import AdaptiveLimit

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[object]]
Clock = Callable[[], float]

CONNECT_TIMEOUT = 60.0
LONGEST_WAIT = 300.0
"""Seconds; an endpoint that asks for a longer pause counts as down."""
LARGEST_REPLY = 64 * 2**20
"""Bytes of one reply or stream after decompression; what is larger is not read to its end."""
_REFUSED = (400, 413, 422)
"""Statuses that concern one request; other requests may pass."""
_PASSING = (408, 409, 425)
"""Statuses that are worth a retry, besides 429 and those of the server."""


class TooLargeError(aiohttp.ClientPayloadError):
    """A reply exceeds the size limit."""

    def __init__(self) -> None:
        super().__init__(f"more than {LARGEST_REPLY / 2**20:g} MiB")


class RefusedError(EndpointError):
    """The endpoint refuses this request for its content; other requests may pass."""

    def __init__(self, message: str, reply: Reply) -> None:
        super().__init__(message)
        self.reply = reply


class Retryable(Exception):  # noqa: N818 - a signal to the retry loop, not an error for users
    """An attempt failed in a way that may pass; `error` is raised when it still fails after `most` retries."""

    def __init__(self, error: ModelError, wait: float | None = None, most: float = float("inf")) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait
        self.most = most


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter; a wait that the server asks for is kept, with jitter on top."""

    retries: int
    base: float = 0.5
    ceiling: float = 30.0

    def delay(self, failures: int, asked: float | None, error: ModelError) -> float:
        """Seconds before attempt number `failures` + 1."""
        if asked is None:
            return random.uniform(0, min(self.ceiling, self.base * 2**failures))
        if asked > LONGEST_WAIT:
            reason = str(error).rstrip(".")
            raise EndpointError(f"{reason}. It asks for a pause of {asked:,.0f} s; resume the run then.") from error
        return asked + random.uniform(0, min(1.0, 0.1 * asked + self.base / 10))


class Pace:
    """Lets one request pass every `gap` seconds, in the order of asking."""

    def __init__(self, gap: float, sleep: Sleep | None = None, clock: Clock = time.monotonic) -> None:
        self.gap = gap
        self._sleep = sleep or asyncio.sleep
        self._clock = clock
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next free time; it is taken before the wait, so that two callers never share one."""
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
    """HTTP status → what to do about it, where there is more to say than to check the address."""
    timeout: str = ""
    """What to do when no answer comes in time."""


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """One endpoint; `title` names it in messages. Safe to call concurrently, and usable again after `aclose`."""

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
    ) -> None:
        self.url = url
        self.title = title
        self.limit = AdaptiveLimit(concurrency)
        self.worked = False
        """Whether a usable reply has ever come from this endpoint."""
        self._hints = hints
        self._secrets = {key, quote(key, safe="")} - {""}
        self._headers = {"Content-Type": "application/json", "User-Agent": "evenhand", **(headers or {})}
        self._query = query or None
        self._policy = RetryPolicy(retries)
        self._pace = Pace(1 / per_second) if per_second else None
        self._timeout = aiohttp.ClientTimeout(
            total=CONNECT_TIMEOUT + timeout, sock_connect=CONNECT_TIMEOUT, sock_read=timeout
        )
        # A stream may take as long as it likes while something arrives.
        self._stream_timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: Callable[[], bytes], read: Callable[[Reply], T]) -> tuple[T, int]:
        """What `read` makes of the reply, and how many retries that took.

        `body` is called once the concurrency limit lets the request pass. `read` gets replies of any status; it raises
        Retryable for another attempt, and `self.fault(reply)` for a status that it does not expect.
        """

        async def attempt() -> T:
            async with self.limit as epoch:
                if self._pace is not None:
                    await self._pace.turn()
                try:
                    response = await self.send(body())
                    reply = Reply(response.status, response.headers, await read_reply(response))
                except (aiohttp.ClientError, OSError) as error:
                    raise self._no_reply(error) from error
                if reply.status == 429:
                    self.limit.push_back(epoch)
                result = read(reply)
                self.worked = True
                self.limit.succeeded()
                return result

        return await self.retry(attempt)

    async def post_json(self, body: Mapping[str, Any], read: Callable[[Any], T], what: str) -> T:
        """What `read` makes of the JSON in the reply; a reply without usable `what` is retried once.

        Raises EndpointError (permanent when it concerns every request), RefusedError or BadResponseError.
        """
        data = orjson.dumps(body)

        def parse(reply: Reply) -> T:
            if reply.status != 200:
                raise self.fault(reply)
            try:
                value = orjson.loads(reply.body)
            except ValueError as error:
                message = f"{self.title} did not send JSON but {self.excerpt(reply.body)!r}"
                raise Retryable(BadResponseError(message), most=1) from error
            try:
                return read(value)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                why = f"{error} is missing" if isinstance(error, KeyError) else self.redact(str(error))
                raise Retryable(BadResponseError(f"{self.title} sent no usable {what}: {why}"), most=1) from error

        return (await self.post(lambda: data, parse))[0]

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """The result of the first attempt that succeeds, and how many retries that took."""
        failures = 0
        while True:
            try:
                return await attempt(), failures
            except Retryable as fault:
                failures += 1
                if failures > min(self._policy.retries, fault.most):
                    raise fault.error from fault
                await asyncio.sleep(self._policy.delay(failures, fault.wait, fault.error))

    async def send(self, data: bytes, url: str | None = None, *, stream: bool = False) -> aiohttp.ClientResponse:
        """The response to one request, unread: `read_reply` or `read_lines` reads it."""
        session = self._session or self._open()
        return await session.post(
            url or self.url,
            data=data,
            params=self._query,
            timeout=self._stream_timeout if stream else self._timeout,
            allow_redirects=False,  # a redirect would carry the key elsewhere
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def fault(self, reply: Reply) -> Exception:
        """What a status other than 200 means: an error, or Retryable."""
        status, said, hints = reply.status, self.excerpt(reply.body), self._hints
        if status == 429 and b"insufficient_quota" in reply.body:
            return EndpointError(
                f"{self.title} says that the quota is used up; check the account's billing.", permanent=True
            )
        if status == 429:
            fix = hints.statuses.get(429, "it takes no more requests for now")
            return Retryable(EndpointError(f"{self.title} kept answering 429; {fix}."), retry_after(reply.headers))
        if status in _PASSING or status >= 500:
            return Retryable(EndpointError(f"{self.title} kept answering {status}: {said}"), retry_after(reply.headers))
        fix = f"check {hints.url}" if status in (404, 405) else "it refuses the request"
        fix = hints.statuses.get(status, fix)
        if 300 <= status < 400:
            fix = f"it points to {self.redact(reply.headers.get('Location', 'nowhere'))}; check {hints.url}"
        message = f"{self.title} answered {status}; {fix}." + (f" It said: {said}" if said else "")
        return RefusedError(message, reply) if status in _REFUSED else EndpointError(message, permanent=True)

    def excerpt(self, payload: bytes, most: int = 400) -> str:
        """The beginning of a reply as one line; the key is removed first, so that a cut leaves no part of it."""
        text = self.redact(payload.decode("utf-8", "replace"))
        return " ".join(text[: 2 * most].split())[:most]

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return text

    def _no_reply(self, error: aiohttp.ClientError | OSError) -> Exception:
        """What a missing or broken reply means; an address that has never worked is soon given up."""
        where = self._hints.url
        if isinstance(error, TooLargeError):
            return BadResponseError(f"{self.title} sent a reply of {error}, which is too large; check {where}.")
        if isinstance(error, (aiohttp.ClientConnectorDNSError, aiohttp.InvalidURL)) and not self.worked:
            return EndpointError(f"{self.title} does not exist; check {where}.", permanent=True)
        text = self.redact(str(error) or type(error).__name__)
        message = f"{self.title} cannot be reached ({text}); is the server up? Is {where} right?"
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)) and not self.worked:
            return Retryable(EndpointError(message, permanent=True), most=2)
        if isinstance(error, TimeoutError):
            hint = f"; {self._hints.timeout}" if self._hints.timeout else ""
            message = f"{self.title} did not answer in time{hint}."
        return Retryable(EndpointError(message))

    def _open(self) -> aiohttp.ClientSession:
        self._session = open_session(self._headers, self._timeout)
        return self._session


def open_session(headers: Mapping[str, str], timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    """A session without cookies and with no connection limit of its own."""
    # A proxy look-up costs as much as a call, so it is made only where a proxy is set.
    proxied = any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"))
    return aiohttp.ClientSession(
        headers=headers,
        timeout=timeout,
        trust_env=proxied,
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def read_reply(response: aiohttp.ClientResponse) -> bytes:
    """The whole body. It is read in pieces, since `response.read()` would decompress all of it, however large."""
    chunks: list[bytes] = []
    size = 0
    async with response:
        while chunk := await response.content.readany():
            chunks.append(chunk)
            size = _bounded(response, size + len(chunk))
    return b"".join(chunks)


async def read_lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """The lines of a stream as they arrive; the size limit holds for all of them together."""
    parts: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size = _bounded(response, size + len(chunk))
        head, *others = chunk.split(b"\n")
        parts.append(head)
        for other in others:
            yield b"".join(parts)
            parts = [other]
    yield b"".join(parts)


def _bounded(response: aiohttp.ClientResponse, size: int) -> int:
    if size > LARGEST_REPLY:
        response.close()
        raise TooLargeError
    return size


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait that the reply's headers ask for, in seconds."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        with contextlib.suppress(ValueError):
            return max(0.0, float(value) * scale)
        with contextlib.suppress(ValueError):
            date = email.utils.parsedate_to_datetime(value)
            return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    return None
