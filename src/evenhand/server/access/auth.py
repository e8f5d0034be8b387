"""Who may ask for what: API keys, of which the config holds only hashes, and the exception for this machine.

A key is 32 random bytes, so its plain SHA-256 can be kept: nobody can guess the key from it, and a slow hash, made
for passwords, would only hold up every request. A presented key is compared with all keys in constant time.

Without any key in the config the server may be bound to a loopback address only, and serves this machine's programs;
pages of other sites that a browser shows here are kept out by their Host and Origin. Where there are keys, everyone
needs one, from this machine too: a reverse proxy makes strangers look like neighbours.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from evenhand.errors import PlanError
from evenhand.server.config import KeyConfig, Permission
from evenhand.server.errors import RequestError

PREFIX = "evh-"
"""What keys begin with, so that they are recognised where they do not belong."""

_NEEDED: dict[str, Permission] = {
    "/page": "admin",
    "/admin": "admin",
    "/metrics": "metrics",
    "/v1/moderations": "score",
    "/v1alpha1": "score",
    "/$discovery": "score",
}
_HASH = re.compile("[0-9a-fA-F]{64}")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request; its name is "" where no keys are asked for."""

    name: str = ""
    may: frozenset[Permission] = frozenset()
    per_minute: float | None = None
    """Requests it may send; None for no limit of its own."""


_CLIENT = web.RequestKey("client", Client)

NEIGHBOUR = Client(may=frozenset({"score", "metrics", "admin"}))
"""A program of this machine without a key; the method cannot be switched off without one that may."""


class Auth:
    """Finds a request's client, or refuses it."""

    def __init__(self, keys: Mapping[str, KeyConfig], host: str, *, origins: Collection[str] = ()) -> None:
        if not keys and not is_loopback(host):
            raise PlanError(
                f"Bound to {host}, the server can be reached by others and needs API keys: make one with "
                "`evenhand serve-key NAME`, or bind to 127.0.0.1."
            )
        self._clients = [
            (_digest(name, key.hash), Client(name, frozenset(key.may), key.per_minute)) for name, key in keys.items()
        ]
        self._origins = frozenset(origins)

    def client(self, request: web.Request) -> Client:
        """Who asks; raises RequestError where nobody may without a key, or not with this one."""
        if not self._clients:
            self._keep_out_other_sites(request)
            return NEIGHBOUR
        presented = key_of(request)
        if not presented:
            raise RequestError(401, "This server needs an API key; send it as `Authorization: Bearer KEY`.")
        if (found := self._find(presented)) is None:
            raise RequestError(401, "The API key is not valid.", code="invalid_api_key")
        return found

    def _find(self, presented: str) -> Client | None:
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        found = None
        for known, client in self._clients:  # to the end, so that time does not tell where it matched
            if hmac.compare_digest(known, digest):
                found = client
        return found

    def _keep_out_other_sites(self, request: web.Request) -> None:
        if not is_loopback(_host_name(f"//{request.host}")):
            raise RequestError(
                403, "Without API keys this server answers only at a loopback address such as 127.0.0.1 or localhost."
            )
        origin = request.headers.get("Origin")
        welcome = {*self._origins, f"{request.scheme}://{request.host}"}
        if origin and "*" not in welcome and origin not in welcome:
            raise RequestError(403, "Pages of other sites may not use this server.")


def auth_middleware(
    current: Callable[[], Auth], open_paths: Collection[str] = ()
) -> Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]:
    """Lets pass who may; `current` is asked every time, because keys can be reloaded.

    What is at the open paths may be read by everyone.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in open_paths and request.method in ("GET", "HEAD"):
            return await handler(request)
        client = current().client(request)
        if (right := right_needed(request.path)) and not allowed(client, right):
            raise RequestError(403, f"This key may not do this: it lacks the right {right!r}.", code="missing_right")
        request[_CLIENT] = client
        return await handler(request)

    return check


def client_of(request: web.Request) -> Client:
    """Who sent a request that has passed the middleware."""
    return request.get(_CLIENT, Client())


def allowed(client: Client, right: Permission) -> bool:
    return right in client.may or (right == "metrics" and "admin" in client.may)


def right_needed(path: str) -> Permission | None:
    for place, right in _NEEDED.items():
        if path == place or path.startswith(f"{place}/"):
            return right
    return None


def key_of(request: web.Request) -> str:
    """The key as OpenAI's and Google's clients send it; "" where there is none.

    Nothing that a browser adds of its own accord (cookies, passwords) counts, so that no other site can use it.
    """
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if request.path.startswith(("/v1alpha1/", "/$discovery/")):
        return request.headers.get("X-Goog-Api-Key") or request.query.get("key", "")
    return request.headers.get("X-Api-Key", "")


def new_key() -> tuple[str, str]:
    """A key, to be shown once, and its hash for the config."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _digest(name: str, text: str) -> bytes:
    if not _HASH.fullmatch(text):
        raise PlanError(
            f"The hash of the key {name!r} must be 64 hex digits; `evenhand serve-key NAME` makes a key and its hash."
        )
    return bytes.fromhex(text)


def _host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
