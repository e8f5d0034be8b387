"""The HTTP client of scorers that are services: retries, a bounded number of calls, a pace; no key in any message."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import orjson

from evenhand.errors import BadResponseError, EndpointError
from evenhand.gate import AdaptiveLimit
from evenhand.models.retry import Retryable, RetryPolicy, retry_after

T = TypeVar("T")

_SHOWN = 300  # characters of a reply in a message


class RefusedError(EndpointError):
    """The service refuses this request for what it says; others may pass."""

    def __init__(self, message: str, payload: bytes) -> None:
        super().__init__(message)
        self.payload = payload


class Service:
    """One address that is asked for scores.

    `variables` names the environment variables of the key and of the address, for messages that say what to mend.
    """

    def __init__(
        self,
        name: str,
        url: str,
        key: str,
        *,
        variables: tuple[str, str],
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        per_second: float | None = None,
        concurrency: int = 8,
        retries: int = 5,
        timeout: float = 60.0,
    ) -> None:
        self.url = url
        self.limit = AdaptiveLimit(concurrency)
        self._where = f"{name} ({url.partition('?')[0]})"
        self._key = key
        self._key_variable, self._url_variable = variables
        self._headers = {"Content-Type": "application/json", "User-Agent": "evenhand", **(headers or {})}
        self._query = query or {}
        self._gap = 1 / per_second if per_second else 0.0
        self._next = 0.0
        self._policy = RetryPolicy(retries)
        self._timeout = aiohttp.ClientTimeout(total=timeout + 30, sock_connect=30, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None
        self._worked = False
        """Whether a usable reply has ever come from there."""

    async def post(self, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the reply; what it fails on is a bad reply.

        Raises EndpointError (permanent when it concerns every request), RefusedError or BadResponseError.
        """
        failures = 0
        while True:
            try:
                async with self.limit as epoch:
                    await self._pace()
                    return await self._post(orjson.dumps(body), read, epoch)
            except Retryable as fault:
                failures += 1
                if failures > min(self._policy.retries, fault.most):
                    raise fault.error from fault
                await asyncio.sleep(self._policy.delay(failures, fault.wait, fault.error))

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + self._gap
        if start > now:
            await asyncio.sleep(start - now)

    async def _post(self, body: bytes, read: Callable[[Any], T], epoch: int) -> T:
        session = self._session or self._open()
        try:
            # A redirect is not followed: it would carry the key elsewhere.
            async with session.post(self.url, data=body, params=self._query, allow_redirects=False) as response:
                payload = await response.read()
                if response.status != 200:
                    raise self._fault(response.status, response.headers, payload, epoch)
        except (aiohttp.ClientError, OSError) as error:
            raise self._no_reply(error) from error
        result = self._read(payload, read)
        self._worked = True
        self.limit.succeeded()
        return result

    def _read(self, payload: bytes, read: Callable[[Any], T]) -> T:
        try:
            reply = orjson.loads(payload)
        except ValueError as error:
            message = f"{self._where} did not send JSON but {self._excerpt(payload)!r}"
            raise Retryable(BadResponseError(message), most=1) from error
        try:
            return read(reply)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else self._redact(str(error))
            raise Retryable(BadResponseError(f"{self._where} sent no usable scores: {why}"), most=1) from error

    def _fault(self, status: int, headers: Mapping[str, str], payload: bytes, epoch: int) -> Exception:
        """What a status other than 200 means."""
        said = self._excerpt(payload)
        if status == 429:
            self.limit.push_back(epoch)
            if b"insufficient_quota" in payload:
                message = f"{self._where} says that the quota is used up; check the account's billing."
                return EndpointError(message, permanent=True)
            return Retryable(
                EndpointError(f"{self._where} kept answering 429 (too many requests)"), retry_after(headers)
            )
        if status in (408, 409, 425) or status >= 500:
            return Retryable(EndpointError(f"{self._where} kept answering {status}: {said}"), retry_after(headers))
        if status in (400, 413, 422):
            return RefusedError(f"{self._where} refused the request ({status}): {said}", payload)
        fix = f"check {self._url_variable}"
        if status in (401, 403):
            fix = f"check the key in {self._key_variable}"
        elif 300 <= status < 400:
            fix = f"it points to {self._redact(headers.get('Location', 'nowhere'))}; {fix}"
        return EndpointError(
            f"{self._where} answered {status}; {fix}." + (f" It said: {said}" if said else ""), permanent=True
        )

    def _no_reply(self, error: aiohttp.ClientError | OSError) -> Exception:
        """What it means that no whole reply came; an address that has never worked is not tried for long."""
        text = self._redact(str(error) or type(error).__name__)
        message = f"{self._where} cannot be reached ({text}); is it up, and {self._url_variable} right?"
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)) and not self._worked:
            return Retryable(EndpointError(message, permanent=True), most=2)
        if isinstance(error, aiohttp.InvalidURL):
            return EndpointError(message, permanent=True)
        if isinstance(error, TimeoutError):
            message = f"{self._where} did not answer in time"
        return Retryable(EndpointError(message))

    def _open(self) -> aiohttp.ClientSession:
        proxied = any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"))
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=self._timeout,
            trust_env=proxied,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    def _excerpt(self, payload: bytes) -> str:
        """The beginning of a reply as one line; the key is taken out first, lest a cut leave a part of it."""
        text = self._redact(payload.decode("utf-8", "replace"))
        return " ".join(text[: 2 * _SHOWN].split())[:_SHOWN]

    def _redact(self, text: str) -> str:
        for form in (self._key, quote(self._key, safe="")):
            text = text.replace(form, "[key]") if form else text
        return text


def unit(name: str, value: Any) -> float:
    """A score, or ValueError for what is not a number in 0–1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}, which is not a number in 0–1")
    return float(value)


def sendable(text: str) -> str:
    """The text without lone surrogates, which no JSON can hold."""
    return text.encode("utf-8", "replace").decode()
