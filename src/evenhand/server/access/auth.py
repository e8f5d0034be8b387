"""Authentication by API keys, of which the config holds only hashes, and access from this machine without keys.

A key is 32 random bytes, so a plain SHA-256 hash is safe to store; a slow password hash would only delay every
request. A presented key is compared with all keys in constant time.

Without keys in the config, the server binds to loopback addresses only and serves programs of this machine; the Host
and Origin headers keep out web pages of other sites. With keys, everyone needs one, also from this machine, because
requests through a reverse proxy look local.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from time import time
from urllib.parse import urlsplit

from aiohttp import web

from evenhand.core.errors import PlanError
from evenhand.server.access.address import address_of
from evenhand.server.config import KeyConfig, Permission
from evenhand.server.errors import RequestError
from evenhand.server.state.state import State
from evenhand.server.state.types import Quota

PREFIX = "evh-"
"""Prefix of all keys, so that leaked keys are recognised."""

INVALID_KEY = "invalid_api_key"
FREE_TRIES = 10
"""Wrong keys in a row from one address that are answered at once."""
LONGEST_DELAY = 10.0
"""Seconds; each further wrong key waits one second longer, up to this."""

_log = logging.getLogger("evenhand.server")
_REQUIRED: dict[str, Permission] = {
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
    """The sender of a request; its name is "" if the server has no keys."""

    name: str = ""
    may: frozenset[Permission] = frozenset()
    quota: Quota | None = None
    """Its limits; None for none."""
    routes: tuple[str, ...] | None = None
    """The routes that it may use; None for all."""
    expires: float = math.inf
    """In seconds since 1970."""


class WrongKeys:
    """Counts wrong keys by client address, and delays the answers to an address that sends many.

    Clients with a right key are never delayed: behind a proxy that the config does not name, all have its address.
    """

    def __init__(self, state: State | None = None, clock: Callable[[], float] = time) -> None:
        self.count = 0
        self._state = state or State()
        self._clock = clock

    async def note(self, address: str) -> None:
        """Log a wrong key; after many in a row, only wait."""
        self.count += 1
        row = await self._state.wrong_key(address, self._clock())
        if row <= FREE_TRIES:
            more = "; the next ones are answered slowly, and only counted" if row == FREE_TRIES else ""
            _log.warning("%s sent a wrong API key%s", address, more)
        else:
            await asyncio.sleep(min(LONGEST_DELAY, row - FREE_TRIES))


_CLIENT = web.RequestKey("client", Client)
_UNKNOWN = Client()
LOCAL_CLIENT = Client(may=frozenset({"score", "metrics", "admin"}))
"""A program of this machine without a key; switching off the method always needs a key."""


class Auth:
    """Identifies a request's client, or rejects the request."""

    def __init__(self, keys: Mapping[str, KeyConfig], host: str, *, origins: Collection[str] = ()) -> None:
        if not keys and not is_loopback(host):
            raise PlanError(
                f"Bound to {host}, the server can be reached from other machines and needs API keys. Make one with "
                "`evenhand serve keys NAME`, or bind to 127.0.0.1."
            )
        if not keys and "*" in origins:
            raise PlanError(
                "With cors '*' and no keys, every web page could use the server. Name the origins, or add keys with "
                "`evenhand serve keys NAME`."
            )
        self._clients = [(_digest(name, key.hash), _client(name, key)) for name, key in keys.items()]
        self._origins = frozenset(origins)

    def client(self, request: web.Request) -> Client:
        """Return the request's client; raises RequestError if a key is missing or not valid."""
        if not self._clients:
            self._reject_other_sites(request)
            return LOCAL_CLIENT
        presented = key_of(request)
        if not presented:
            raise RequestError(401, "This server needs an API key. Send it as `Authorization: Bearer KEY`.")
        return self.owner(presented)

    @property
    def needs_key(self) -> bool:
        return bool(self._clients)

    def owner(self, presented: str) -> Client:
        """Return the client of a key; raises RequestError if the key is not valid."""
        if (client := self._find(presented)) is None:
            raise RequestError(401, "The API key is not valid.", code=INVALID_KEY)
        if client.expires <= time():
            raise RequestError(401, "The API key has expired.", code="expired_api_key")
        return client

    def _find(self, presented: str) -> Client | None:
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        match = None
        for known, client in self._clients:  # no early exit, so that timing does not reveal which key matched
            if hmac.compare_digest(known, digest):
                match = client
        return match

    def _reject_other_sites(self, request: web.Request) -> None:
        if (address := address_of(request)) and not is_loopback(address):
            raise RequestError(403, "Without API keys, this server can be used only from its own machine.")
        if not _is_loopback_address(request.host):
            raise RequestError(
                403,
                "Without API keys, this server can be used only at a loopback address such as 127.0.0.1 or localhost.",
            )
        origin = request.headers.get("Origin")
        if origin and origin not in {*self._origins, f"{request.scheme}://{request.host}"}:
            raise RequestError(403, "Web pages of other sites may not use this server unless its config names them.")


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


def client_of(request: web.Request) -> Client:
    """Return the client of a request that has passed the middleware."""
    return request.get(_CLIENT, _UNKNOWN)


def allowed(client: Client, right: Permission) -> bool:
    return right in client.may or (right == "metrics" and "admin" in client.may)


@lru_cache(maxsize=256)
def right_needed(path: str) -> Permission | None:
    for place, right in _REQUIRED.items():
        if path == place or path.startswith(f"{place}/"):
            return right
    return None


def key_of(request: web.Request) -> str:
    """Return the key as OpenAI's, Azure's and Google's clients send it, or "".

    Credentials that a browser adds by itself (cookies, passwords) are ignored, so that other sites cannot use them.
    """
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if request.path.startswith(("/v1alpha1/", "/$discovery/")):
        return request.headers.get("X-Goog-Api-Key") or request.query.get("key", "")
    return request.headers.get("Api-Key") or request.headers.get("X-Api-Key", "")


def new_key() -> tuple[str, str]:
    """Return a new key, to be shown once, and its hash for the config."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _client(name: str, key: KeyConfig) -> Client:
    expires = key.expires.timestamp() if key.expires else math.inf
    return Client(name, frozenset(key.may), _quota(key), key.routes, expires)


def _quota(key: KeyConfig) -> Quota | None:
    if key.per_minute is key.at_once is key.budget is None:
        return None
    if key.budget is None:
        return Quota(key.per_minute, key.at_once)
    return Quota(key.per_minute, key.at_once, key.budget.tokens, key.budget.money, key.budget.per)


def _digest(name: str, text: str) -> bytes:
    if not _HASH.fullmatch(text):
        raise PlanError(
            f"The hash of the key {name!r} must be 64 hex digits. Make a new key with `evenhand serve keys NAME`."
        )
    return bytes.fromhex(text)


@lru_cache(maxsize=256)
def _is_loopback_address(address: str) -> bool:
    return is_loopback(_host_name(f"//{address}"))


def _host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
