"""Fetches untrusted web pages: public addresses only, robots.txt respected, with time and size limits.

Host names are checked when they are resolved, and the connection uses the checked address, so DNS rebinding does not
help an attacker; numeric addresses are checked when the URL is parsed, and every redirect is checked again. Nothing
about the user is sent: no cookies, referer, passwords or proxy settings. Of robots.txt (RFC 9309) only the product name
counts, so that a file with thousands of names cannot fill the memory. A failure is a SearchError of one sentence that
names the host, never the whole URL.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import socket
import zlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from evenhand.core.aio import cancelled
from evenhand.core.errors import SearchError, needs_extra
from evenhand.core.http import open_session
from evenhand.core.version import versions

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from protego import Protego


def user_agent() -> str:
    return f"evenhand/{versions().get('evenhand', 'unknown')}"


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Maps host and port to all its addresses; raises OSError if there are none."""

LONGEST_URL = 2_000
_LOWEST_FREE_PORT = 1024
_WEB_PORTS = (80, 443)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# Browsers treat a host as a number if its last label looks like one.
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)\.?$", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_.-]{1,253}", re.IGNORECASE)


def page_url(text: str, allow: Collection[str] = ()) -> URL:
    """Parse a URL and check everything that can be checked before its host name is resolved."""
    if len(text) > LONGEST_URL:
        raise SearchError(f"The URL has more than {LONGEST_URL:,} characters, so it is not fetched.")
    try:
        url = URL(text)
        host, port = url.raw_host, url.port
    except (ValueError, UnicodeError) as error:
        raise SearchError("The URL is not valid.") from error
    if url.scheme not in ("http", "https"):
        raise SearchError(f"Only http and https URLs are fetched, not {url.scheme[:20] or 'one without a scheme'}.")
    if "@" in url.raw_authority:
        raise SearchError("The URL contains a user name or password, so it is not fetched.")
    if not host or port is None:
        raise SearchError("The URL has no host.")
    # Web pages may use any high port; other low ports belong to other services (mail, …), which must not be contacted.
    if port not in _WEB_PORTS and port < _LOWEST_FREE_PORT:
        raise SearchError(f"Port {port} of {host} is not a web port.")
    if not is_allowed(host, port, allow):
        _check_written_address(host)
    return url


def is_allowed(host: str, port: int, allow: Collection[str]) -> bool:
    """Whether this host and port are exempt from the address check."""
    return f"{host}:{port}" in allow


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address, including one embedded in it (NAT64, 6to4), belongs to the public internet."""
    if isinstance(address, IPv4Address):
        return address.is_global and not (address.is_multicast or address.is_reserved)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address.sixtofour is not None and not is_public(address.sixtofour):
        return False
    return address in _GLOBAL_UNICAST and address.is_global and not address.is_multicast


class CheckedResolver(AbstractResolver):
    """A resolver for aiohttp that returns the addresses of a host only if all of them are public."""

    def __init__(self, resolve: Resolve | None = None, allow: Collection[str] = ()) -> None:
        self._resolve = resolve or _system_addresses
        self._allow = allow

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family  # IPv4 and IPv6 are both resolved and checked
        addresses = [ip_address(text) for text in await self._resolve(host, port)]
        if not addresses:
            raise OSError(f"{host} has no address")
        if not is_allowed(host, port, self._allow) and not all(map(is_public, addresses)):
            raise _not_public(host)
        return [_resolved(host, port, address) for address in addresses]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _check_written_address(host: str) -> None:
    """Reject a numeric address that is not public or not written in the standard way."""
    if ":" in host or _ENDS_IN_NUMBER.search(host):
        try:
            address = ip_address(host)
        except ValueError as error:  # 127.1, 0x7f000001, fe80::1%eth0, …
            raise SearchError("The URL has a numeric address in an unusual notation, so it is not fetched.") from error
        if not is_public(address):
            raise _not_public(host)
    elif not _HOST.fullmatch(host):
        raise SearchError("The host name is not valid.")


def _not_public(host: str) -> SearchError:
    return SearchError(f"{host} is not on the public internet, so it is not fetched.")


def _resolved(host: str, port: int, address: IPv4Address | IPv6Address) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=str(address),
        port=port,
        family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
        proto=0,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


async def _system_addresses(host: str, port: int) -> list[str]:
    entries: list[Any] = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


ACCEPTED_ENCODING = "gzip"
_CHUNK = 1 << 16
_GZIP = 31
"""The zlib window size that selects the gzip format."""
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
_SIMPLE = ("iso8859-", "cp125", "koi8-", "mac-")
_OTHERS = frozenset({
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "gb2312", "gbk", "gb18030", "big5", "big5hkscs",
    "shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "cp874", "tis-620",
})  # fmt: skip


async def read_body(response: ClientResponse, most: int) -> tuple[bytes, bool]:
    """Return the first `most` bytes after decompression, and whether the body is complete."""
    unpack = _unpacker(response.headers.get("Content-Encoding", ""))
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        # One byte beyond the limit distinguishes a body that just fits from one that does not.
        body += unpack.decompress(chunk, most + 1 - len(body)) if unpack else chunk
        if len(body) > most:
            return bytes(body[:most]), False
        if unpack and unpack.eof:  # ignore anything after the end of the stream
            break
    return bytes(body), True


def decode(body: bytes, charset: str | None) -> str:
    """Decode with the charset of the reply, else of the page, else UTF-8; invalid bytes are replaced."""
    match = None if charset else _CHARSET.search(body, 0, 2_048)
    named = match[1].decode("ascii", "replace") if match else charset or "utf-8"
    return body.decode(_codec(named), "replace")


def _unpacker(encoding: str) -> zlib._Decompress | None:  # pyright: ignore[reportPrivateUsage] - it has no other name
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(_GZIP)
        case _:
            raise SearchError("The page has a compression that was not requested.")


def _codec(name: str) -> str:
    """Return the codec if web pages use it, else UTF-8; others of Python's (punycode, …) can be made very slow."""
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return known if known in _OTHERS or known.startswith(_SIMPLE) else "utf-8"


US = "evenhand"
_AGENT = re.compile(r"\s*user(?:-|\s+)?agent(?:\s*:|\s)\s*([a-z_-]+|\*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of one robots.txt; without rules, everything is allowed."""

    rules: Protego | None = None

    def allow(self, path: str) -> bool:
        """Whether the path, with its query, may be fetched; of rules of equal length, `Allow` wins."""
        # With a host, since a path that begins with two slashes would be parsed as one.
        return self.rules is None or self.rules.can_fetch(f"http://host{path}", US)


EVERYTHING = Robots()


def read_robots(text: str) -> Robots:
    """Parse the rules for our name, or else those for all robots."""
    with needs_extra("reading web pages", "search"):
        from protego import Protego
    return Robots(Protego.parse("\n".join(map(_with_simple_name, text.removeprefix("\ufeff").splitlines()))))


def _with_simple_name(line: str) -> str:
    match = _AGENT.match(line)
    if match is None:
        return line
    name = (match[1] or "").lower()
    return f"User-agent: {name if name in (US, '*') else 'other'}"


PLAIN = "text/plain"
TYPES = ("text/html", "application/xhtml+xml", PLAIN)
_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,80}")
_REDIRECTS = (301, 302, 303, 307, 308)
_AT_ONCE = 32
_AT_ONCE_PER_HOST = 2
_KEPT_ROBOTS = 1_000


@dataclass(frozen=True, slots=True)
class FetchLimits:
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
        self, *, limits: FetchLimits | None = None, allow: frozenset[str] = frozenset(), resolve: Resolve | None = None
    ) -> None:
        self._limits = limits or FetchLimits()
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
        robots = [*self._robots.values()]
        self._robots.clear()
        await cancelled(robots)
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
