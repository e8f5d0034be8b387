"""Who sends a request and what it may use: addresses behind reverse proxies, permissions by path, and CORS.

The headers X-Forwarded-For and Forwarded can be sent by anyone. They count only if the connection comes from a proxy
that the config names, and only as far as named proxies have written them: from the right to the first other address.
Web pages of other origins may call the server only if the config names them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp import web
from aiohttp.typedefs import Middleware

from evenhand.web.errors import RequestError
from evenhand.web.keys import ADDRESS, INVALID_KEY, Auth, Caller, Handler, Permission, WrongKeys, address_of, allowed

Address = IPv4Address | IPv6Address
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]*)"?', re.IGNORECASE)
_PORT = re.compile(r"(?<=\]):\d+$|^([^:]*):\d+$")
_REQUIRED: dict[str, Permission] = {
    "/page": "admin",
    "/admin": "admin",
    "/metrics": "metrics",
    "/v1/moderations": "score",
    "/v1alpha1": "score",
    "/$discovery": "score",
}
_CLIENT = web.RequestKey("client", Caller)
_UNKNOWN = Caller()
_ALLOWED = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": (
        "Authorization, Api-Key, X-Api-Key, Anthropic-Version, Content-Type, X-Evenhand-Method"
    ),
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "X-Request-Id, Retry-After, X-Evenhand-Route, X-Evenhand-Action, X-Evenhand-Revised, X-Evenhand-Late"


class Proxies:
    """The networks of trusted reverse proxies."""

    def __init__(self, networks: Collection[IPv4Network | IPv6Network] = ()) -> None:
        self._networks = networks

    def note_client(self, request: web.Request) -> None:
        """Find the client's address and keep it with the request, for `address_of`."""
        request[ADDRESS] = self._client(request)

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
        """Walk back through the proxies; stop at the first untrusted or unreadable address."""
        for hop in reversed(hops):
            if not self._trusts(peer) or (before := _parsed(hop)) is None:
                break
            peer = before
        return peer

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


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


def auth_middleware(
    current: Callable[[], Auth], open_paths: Collection[str] = (), wrong_keys: WrongKeys | None = None
) -> Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]:
    """Return the middleware that checks keys and permissions; everyone may read the open paths.

    `current` is called for every request, because keys can be reloaded.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in open_paths and request.method in ("GET", "HEAD"):
            return await handler(request)
        try:
            client = current().client(request)
        except RequestError as error:
            if wrong_keys is not None and error.code == INVALID_KEY:
                await wrong_keys.note(address_of(request))
            raise
        if (right := right_needed(request.path)) and not allowed(client, right):
            raise RequestError(403, f"This key lacks the permission {right!r}.", code="missing_right")
        request[_CLIENT] = client
        return await handler(request)

    return check


def caller_of(request: web.Request) -> Caller:
    """Return the client of a request that has passed the middleware."""
    return request.get(_CLIENT, _UNKNOWN)


@lru_cache(maxsize=256)
def right_needed(path: str) -> Permission | None:
    for place, right in _REQUIRED.items():
        if path == place or path.startswith(f"{place}/"):
            return right
    return None


def preflight(origins: Collection[str]) -> Middleware:
    """Return a middleware that answers preflight requests, which browsers send without a key."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if is_preflight and _is_allowed(request, origins):
            return web.Response(status=204, headers=_ALLOWED)
        return await handler(request)

    return answer


def allow_origins(
    origins: Collection[str],
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return a handler that adds CORS headers to responses for these origins."""

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Vary"] = "Origin"
        if _is_allowed(request, origins):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    return mark


def _is_allowed(request: web.Request, origins: Collection[str]) -> bool:
    origin = request.headers.get("Origin")
    return origin is not None and (origin in origins or "*" in origins)
