"""The address of a request's client, also behind reverse proxies.

The headers X-Forwarded-For and Forwarded can be sent by anyone. They count only if the connection comes from a proxy
that the config names, and only as far as named proxies have written them: from the right to the first other address.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp import web

Address = IPv4Address | IPv6Address
_ADDRESS = web.RequestKey("address", str)
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]*)"?', re.IGNORECASE)
_PORT = re.compile(r"(?<=\]):\d+$|^([^:]*):\d+$")


class Proxies:
    """The networks of trusted reverse proxies."""

    def __init__(self, networks: Collection[IPv4Network | IPv6Network] = ()) -> None:
        self._networks = networks

    def note_client(self, request: web.Request) -> None:
        """Find the client's address and keep it with the request, for `address_of`."""
        request[_ADDRESS] = self._client(request)

    def _client(self, request: web.Request) -> str:
        peer = _parsed(request.remote or "") if self._networks else None
        if peer is None or not self._trusts(peer):
            return request.remote or ""
        headers = request.headers
        claims = {
            self._walk(peer, hops)
            for hops in (
                list(_items(headers.getall("X-Forwarded-For", ()))),
                [_node(item) for item in _items(headers.getall("Forwarded", ()))],
            )
            if hops
        }
        # Two headers that contradict each other: the client has sent the one that the proxy did not write.
        return str(claims.pop() if len(claims) == 1 else peer)

    def _walk(self, peer: Address, hops: list[str]) -> Address:
        """Go back from proxy to proxy; what an untrusted one has written, or nobody can read, ends the way."""
        for hop in reversed(hops):
            if not self._trusts(peer) or (before := _parsed(hop)) is None:
                break
            peer = before
        return peer

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def address_of(request: web.Request) -> str:
    """Return the address of the request's client; "" if it is not known."""
    return request.get(_ADDRESS, request.remote or "")


def _items(values: Collection[str]) -> Iterator[str]:
    for value in values:
        yield from (item.strip() for item in value.split(","))


def _node(item: str) -> str:
    """Return the `for` of one element of a Forwarded header."""
    match = _FOR.search(item)
    return match[1] if match else ""


def _parsed(text: str) -> Address | None:
    """Return an address, which may have a port; IPv4 addresses also in the form that IPv6 sockets give them."""
    try:
        address = ip_address(_PORT.sub(r"\1", text.strip()).strip("[]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
