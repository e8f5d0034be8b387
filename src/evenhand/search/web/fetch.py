"""Fetches untrusted web pages: public addresses only, robots.txt respected, with time and size limits.

Every redirect is checked again (see `address`). Nothing about the user is sent: no cookies, referer, passwords or proxy
settings. A failure is a SearchError of one sentence that names the host, never the whole URL.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from evenhand.core.errors import SearchError
from evenhand.core.http import open_session
from evenhand.search.web.address import CheckedResolver, Resolve, page_url
from evenhand.search.web.body import ACCEPTED_ENCODING, decode, read_body
from evenhand.search.web.polite import user_agent
from evenhand.search.web.robots import EVERYTHING, Robots, read_robots

PLAIN = "text/plain"
TYPES = ("text/html", "application/xhtml+xml", PLAIN)
_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,80}")
_REDIRECTS = (301, 302, 303, 307, 308)
_AT_ONCE = 32
_AT_ONCE_PER_HOST = 2
_KEPT_ROBOTS = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Time and size limits of a page."""

    connect: float = 10.0
    """Seconds to connect."""
    total: float = 20.0
    """Seconds for a page with its redirects, not counting the wait for other pages."""
    size: int = 2_000_000
    """Most bytes of a page after decompression."""
    robots_size: int = 512_000
    """Bytes of a robots.txt that are read; the rest is ignored, as RFC 9309 allows."""
    hops: int = 5


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page."""

    url: str
    """Its URL after all redirects."""
    content: str
    plain: bool
    """Whether the content is plain text, not HTML."""


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes = b""
    complete: bool = True
    kind: str = ""
    charset: str | None = None
    redirect: URL | None = None


class SafeFetcher:
    """Fetches pages: `await fetcher.fetch(url)`; `allow` lists host:port pairs exempt from the address check."""

    def __init__(
        self, *, limits: Limits | None = None, allow: frozenset[str] = frozenset(), resolve: Resolve | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._allow = allow
        self._resolver = CheckedResolver(resolve, allow)
        self._session: aiohttp.ClientSession | None = None
        self._robots: dict[URL, asyncio.Task[Robots]] = {}
        self._semaphore = asyncio.Semaphore(_AT_ONCE)
        # A host's semaphore lives as long as a request holds it or waits for it.
        self._host_semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fetch(self, address: str) -> Page:
        """Fetch the page at the address, following redirects; raise SearchError on any failure."""
        url = self._checked(address)
        left = self._limits.total
        clock = asyncio.get_running_loop().time
        for _ in range(self._limits.hops + 1):
            # The host's semaphore comes first: requests that wait for a busy host must not block others.
            async with self._host_semaphore(str(url.raw_host)), self._semaphore:
                started = clock()
                reply = await _within(left, url, self._visit(url))
                left -= clock() - started
            if reply.redirect is None:
                return self._page(url, reply)
            url = reply.redirect
        raise SearchError(f"{url.raw_host} redirects more than {self._limits.hops} times.")

    async def aclose(self) -> None:
        tasks = list(self._robots.values())
        self._robots.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _page(self, url: URL, reply: _Reply) -> Page:
        if reply.status != 200:
            raise SearchError(f"{url.raw_host} answered with HTTP {reply.status}.")
        if reply.kind not in TYPES:
            # A header may contain anything; only a well-formed type is repeated.
            kind = reply.kind if _TYPE.fullmatch(reply.kind) else "a reply without a known type"
            raise SearchError(f"{url.raw_host} sent {kind}, not a text page.")
        if not reply.complete:
            raise SearchError(f"The page of {url.raw_host} is larger than {self._limits.size:,} bytes.")
        return Page(str(url), decode(reply.body, reply.charset), reply.kind == PLAIN)

    async def _visit(self, url: URL) -> _Reply:
        if not (await self._robots_of(url)).allow(url.raw_path_qs):
            raise SearchError(f"The robots.txt of {url.raw_host} does not allow reading this page.")
        return await self._get(url, self._limits.size, TYPES)

    async def _robots_of(self, url: URL) -> Robots:
        """Return the robots.txt rules of the page's site, which are fetched once."""
        address = url.origin().with_path("/robots.txt")
        task = self._robots.get(address)
        if task is None:
            task = self._robots[address] = asyncio.create_task(self._read_robots(address))
            task.add_done_callback(lambda task: self._forget_failure(address, task))
            while len(self._robots) > _KEPT_ROBOTS:
                del self._robots[next(iter(self._robots))]
        return await asyncio.shield(task)

    def _forget_failure(self, address: URL, task: asyncio.Task[Robots]) -> None:
        """Forget a robots.txt that could not be read, so that the next page of the site tries again."""
        if task.cancelled() or task.exception() is not None:
            self._robots.pop(address, None)

    async def _read_robots(self, address: URL) -> Robots:
        """Fetch the rules; raise SearchError, which forbids every page, if the site cannot provide them now."""
        reply = await _within(self._limits.total, address, self._follow(address))
        if reply.status == 200:
            return read_robots(reply.body.decode("utf-8", "replace"))
        # 429 means to retry later, not that there are no rules.
        if 400 <= reply.status < 500 and reply.status != 429:
            return EVERYTHING
        raise SearchError(f"The robots.txt of {address.raw_host} cannot be read now (HTTP {reply.status}).")

    async def _follow(self, url: URL) -> _Reply:
        for _ in range(self._limits.hops + 1):
            reply = await self._get(url, self._limits.robots_size)
            if reply.redirect is None:
                return reply
            url = reply.redirect
        raise SearchError(f"The robots.txt of {url.raw_host} redirects too often.")

    async def _get(self, url: URL, most: int, types: tuple[str, ...] = ()) -> _Reply:
        """Send one request; the body is read only if status and type are usable."""
        session = self._session or self._open()
        async with session.get(url, allow_redirects=False) as response:
            status, location = response.status, response.headers.get("Location")
            if status in _REDIRECTS and location:
                return _Reply(status, redirect=self._checked(location, url))
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if status != 200 or (types and kind not in types):
                return _Reply(status, kind=kind)
            body, complete = await read_body(response, most)
            return _Reply(status, body, complete, kind, response.charset)

    def _checked(self, address: str, base: URL | None = None) -> URL:
        """Parse and check an address, which may be relative to the page that redirects to it."""
        if base is not None:
            try:
                address = str(base.join(URL(address)))
            except (ValueError, UnicodeError) as error:
                raise SearchError(f"{base.raw_host} redirects to an invalid URL.") from error
        return page_url(address, self._allow)

    def _host_semaphore(self, host: str) -> asyncio.Semaphore:
        semaphore = self._host_semaphores.get(host)
        if semaphore is None:
            semaphore = self._host_semaphores[host] = asyncio.Semaphore(_AT_ONCE_PER_HOST)
        return semaphore

    def _open(self) -> aiohttp.ClientSession:
        headers = {
            "User-Agent": f"{user_agent()} (reads single pages for research)",
            "Accept": ", ".join(TYPES),
            "Accept-Encoding": ACCEPTED_ENCODING,
        }
        timeout = aiohttp.ClientTimeout(total=None, connect=self._limits.connect)
        self._session = open_session(headers, timeout, self._resolver)
        return self._session


async def _within(seconds: float, url: URL, work: Coroutine[Any, Any, _Reply]) -> _Reply:
    """Run `work` with a time limit; turn any failure into a SearchError of one sentence."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise SearchError(f"{url.raw_host} did not send its page in time.") from error
    except (aiohttp.ClientError, OSError, zlib.error, ValueError) as error:
        raise SearchError(f"{url.raw_host} could not be read ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host name"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "invalid certificate"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection"
    if isinstance(error, zlib.error):
        return "damaged compression"
    return "the reply is not valid HTTP"
