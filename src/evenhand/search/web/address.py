"""Decides which addresses may be fetched: the public internet, never this machine or its network.

Host names are checked when they are resolved, and the connection uses the checked address, so DNS rebinding does not
help an attacker. Numeric addresses are checked when the URL is parsed, since they are not resolved.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from evenhand.core.errors import SearchError

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
