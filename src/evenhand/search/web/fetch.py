"""Fetches pages of strangers with care: public addresses only, robots.txt respected, everything limited.

Every hop of a redirect is checked anew (see `address`). Nothing about the user goes out: no cookies, no referer, no
passwords, no proxy settings. A failure is a SearchError of one sentence that names the host, never the whole address.
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

from evenhand.errors import SearchError
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
    """What a page may cost."""

    connect: float = 10.0
    """Seconds until the connection stands."""
    total: float = 20.0
    """Seconds for a page with its redirects, however slowly it drips; waiting for other pages does not count."""
    size: int = 2_000_000
    """Bytes of a page after decompression."""
    robots_size: int = 512_000
    """Bytes of a robots.txt that are read; the rest is left out, as RFC 9309 allows."""
    hops: int = 5


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it came."""

    url: str
    """Where it was found after all redirects."""
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
    leads_to: URL | None = None


class SafeFetcher:
    """Fetches pages: `await fetcher.fetch(url)`; `allow` names pairs host:port whose addresses are not checked."""

    def __init__(
        self, *, limits: Limits | None = None, allow: frozenset[str] = frozenset(), resolve: Resolve | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._allow = allow
        self._resolver = CheckedResolver(resolve, allow)
        self._session: aiohttp.ClientSession | None = None
        self._robots: dict[URL, asyncio.Task[Robots]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        # A host's semaphore lives as long as somebody holds it or waits for it.
        self._host_places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fetch(self, address: str) -> Page:
        """The page at the address, after redirects; whatever stands against it is a SearchError."""
        url = self._checked(address)
        left = self._limits.total
        clock = asyncio.get_running_loop().time
        for _ in range(self._limits.hops + 1):
            # First the host, then any place: who waits for a busy host takes no place from others.
            async with self._host_place(str(url.raw_host)), self._places:
                started = clock()
                reply = await _within(left, url, self._visit(url))
                left -= clock() - started
            if reply.leads_to is None:
                return self._page(url, reply)
            url = reply.leads_to
        raise SearchError(f"{url.raw_host} leads on to more than {self._limits.hops} other addresses in a row.")

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
            # A header can hold anything; only what looks like a type is repeated.
            kind = reply.kind if _TYPE.fullmatch(reply.kind) else "something without a known type"
            raise SearchError(f"{url.raw_host} sent {kind}, not a text page.")
        if not reply.complete:
            raise SearchError(f"The page of {url.raw_host} is larger than {self._limits.size:,} bytes.")
        return Page(str(url), decode(reply.body, reply.charset), reply.kind == PLAIN)

    async def _visit(self, url: URL) -> _Reply:
        if not (await self._robots_of(url)).allow(url.raw_path_qs):
            raise SearchError(f"The robots.txt of {url.raw_host} does not allow this page to be read.")
        return await self._get(url, self._limits.size, TYPES)

    async def _robots_of(self, url: URL) -> Robots:
        """The rules of the page's site: asked for once, by whoever comes first."""
        place = url.origin().with_path("/robots.txt")
        task = self._robots.get(place)
        if task is None:
            task = self._robots[place] = asyncio.create_task(self._read_robots(place))
            task.add_done_callback(lambda task: self._forget_failure(place, task))
            while len(self._robots) > _KEPT_ROBOTS:
                del self._robots[next(iter(self._robots))]
        return await asyncio.shield(task)

    def _forget_failure(self, place: URL, task: asyncio.Task[Robots]) -> None:
        """A site that cannot be reached now may be later; the next page asks again."""
        if task.cancelled() or task.exception() is not None:
            self._robots.pop(place, None)

    async def _read_robots(self, place: URL) -> Robots:
        """The rules; where a site cannot tell them now, everything is forbidden, by a SearchError."""
        reply = await _within(self._limits.total, place, self._follow(place))
        if reply.status == 200:
            return read_robots(reply.body.decode("utf-8", "replace"))
        # 429 asks for patience; it does not say that there are no rules.
        if 400 <= reply.status < 500 and reply.status != 429:
            return EVERYTHING
        raise SearchError(f"The robots.txt of {place.raw_host} cannot be read now (HTTP {reply.status}).")

    async def _follow(self, url: URL) -> _Reply:
        for _ in range(self._limits.hops + 1):
            reply = await self._get(url, self._limits.robots_size)
            if reply.leads_to is None:
                return reply
            url = reply.leads_to
        raise SearchError(f"The robots.txt of {url.raw_host} leads on and on.")

    async def _get(self, url: URL, most: int, types: tuple[str, ...] = ()) -> _Reply:
        """One request; the body is read only of a reply that is wanted."""
        session = self._session or self._open()
        async with session.get(url, allow_redirects=False) as response:
            status, location = response.status, response.headers.get("Location")
            if status in _REDIRECTS and location:
                return _Reply(status, leads_to=self._checked(location, url))
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if status != 200 or (types and kind not in types):
                return _Reply(status, kind=kind)
            body, complete = await read_body(response, most)
            return _Reply(status, body, complete, kind, response.charset)

    def _checked(self, address: str, base: URL | None = None) -> URL:
        """The address as a URL that may be visited, relative to the page that led to it."""
        if base is not None:
            try:
                address = str(base.join(URL(address)))
            except (ValueError, UnicodeError) as error:
                raise SearchError(f"{base.raw_host} leads on to something that is no address.") from error
        return page_url(address, self._allow)

    def _host_place(self, host: str) -> asyncio.Semaphore:
        place = self._host_places.get(host)
        if place is None:
            place = self._host_places[host] = asyncio.Semaphore(_AT_ONCE_PER_HOST)
        return place

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            headers={
                "User-Agent": f"{user_agent()} (reads single pages for research)",
                "Accept": ", ".join(TYPES),
                "Accept-Encoding": ACCEPTED_ENCODING,
            },
            timeout=aiohttp.ClientTimeout(total=None, connect=self._limits.connect),
            # Names are resolved, and checked, for every connection; nothing is remembered in between.
            connector=aiohttp.TCPConnector(limit=0, resolver=self._resolver, use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )
        return self._session


async def _within(seconds: float, url: URL, work: Coroutine[Any, Any, _Reply]) -> _Reply:
    """Do the work in time; what goes wrong on the way becomes one sentence."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise SearchError(f"{url.raw_host} did not send its page in time.") from error
    except (aiohttp.ClientError, OSError, zlib.error, ValueError) as error:
        raise SearchError(f"{url.raw_host} could not be read ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "its certificate is not right"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection"
    if isinstance(error, zlib.error):
        return "damaged compression"
    return "the reply is not proper HTTP"
