"""API keys: how a config writes them, what a key may do, and who sent a request.

A key is 32 random bytes, so a plain SHA-256 hash is safe to store; a slow password hash would only delay every
request. A presented key is compared with all keys in constant time.

Without keys, a server binds to loopback addresses only and serves programs of this machine; the Host and Origin headers
keep out web pages of other sites. With keys, everyone needs one, also from this machine, because requests through a
reverse proxy look local.
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
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Annotated, Literal, Protocol, Self
from urllib.parse import urlsplit

from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from evenhand.core.errors import PlanError
from evenhand.core.files import checked, read_yaml
from evenhand.web.errors import RequestError

PREFIX = "evh-"
"""Prefix of all keys, so that leaked keys are recognised."""

INVALID_KEY = "invalid_api_key"
FREE_TRIES = 10
"""Wrong keys in a row from one address that are answered at once."""
LONGEST_DELAY = 10.0
"""Seconds; each further wrong key waits one second longer, up to this."""

_log = logging.getLogger("evenhand.server")
_HASH = re.compile("[0-9a-fA-F]{64}")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Per = Literal["day", "month", "total"]
"""The period after which a budget renews, in UTC."""
BURST_SECONDS = 10.0
"""The burst of a key: as many requests as its rate allows in this time."""
FORGET_SECONDS = 600.0
"""An address that sends no wrong key for this time starts anew."""
MOST_ADDRESSES = 10_000
Permission = Literal["bypass", "admin", "score", "metrics"]
ADDRESS = web.RequestKey("address", str)
"""The address of a request's client, where it is known better than from the connection."""
STRICT = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name may have at most 100 letters, digits and . _ : / @ -")
    return name


Name = Annotated[str, AfterValidator(_checked_name)]


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class BudgetConfig(BaseModel):
    """What a key may spend in a period."""

    model_config = STRICT
    tokens: Annotated[int, Field(ge=1)] | None = None
    money: Annotated[float, Field(gt=0)] | None = None
    """In the currency of the prices."""
    per: Per
    """The budget renews with the day or month, in UTC."""

    @model_validator(mode="after")
    def _has_an_amount(self) -> Self:
        if self.tokens is None and self.money is None:
            raise ValueError("give tokens, money or both")
        return self


class KeyConfig(BaseModel):
    """The hash of one client's API key, and its additional permissions."""

    model_config = STRICT
    hash: str
    may: tuple[Permission, ...] = ()
    per_minute: Annotated[float, Field(gt=0)] | None = None
    """Rate limit of this key in requests per minute."""
    at_once: Annotated[int, Field(ge=1)] | None = None
    """Concurrency limit of this key."""
    budget: BudgetConfig | None = None
    routes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The routes that the key may use; all by default."""
    expires: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    """When the key stops working; a date means its beginning, and a time without a zone is UTC."""


class _Keys(BaseModel):
    model_config = STRICT
    keys: Annotated[dict[Name, KeyConfig], Field(min_length=1)]


def read_keys(path: Path) -> dict[str, KeyConfig]:
    """Return the keys in a file that has nothing else; a server's own config is refused, since its keys may chat."""
    hint = "It has only keys, as `evenhand serve keys NAME` prints them: keys: {NAME: {hash: …}}."
    with checked("a file of keys", path, hint):
        return _Keys.model_validate(read_yaml(path)).keys


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one key; None means no limit."""

    per_minute: float | None = None
    at_once: int | None = None
    tokens: float | None = None
    money: float | None = None
    per: Per = "total"

    @property
    def burst(self) -> float:
        return max(1.0, (self.per_minute or 0.0) * BURST_SECONDS / 60)

    @property
    def leases(self) -> bool:
        """Whether requests in flight count."""
        return any(each is not None for each in (self.at_once, self.tokens, self.money))


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request; its name is "" if the server has no keys."""

    name: str = ""
    may: frozenset[Permission] = frozenset()
    quota: Quota | None = None
    """Its limits; None for none."""
    routes: tuple[str, ...] | None = None
    """The routes that it may use; None for all."""
    expires: float = math.inf
    """In seconds since 1970."""


class KeyCounter(Protocol):
    """Where wrong keys are counted: in this process, or for all processes of a server."""

    async def wrong_key(self, address: str, at: float) -> int:
        """Count a wrong key and return how many came in a row from this address."""
        ...


class WrongStreaks:
    """Wrong keys in a row by address, in memory; the number of addresses is bounded."""

    def __init__(self) -> None:
        self._streaks: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, address: str, at: float) -> int:
        before, last = self._streaks.pop(address, (0, at))
        streak = 1 + (before if at - last < FORGET_SECONDS else 0)
        self._streaks[address] = streak, at
        if len(self._streaks) > MOST_ADDRESSES:
            self._streaks.popitem(last=False)
        return streak

    async def wrong_key(self, address: str, at: float) -> int:
        return self.add(address, at)


class WrongKeys:
    """Counts wrong keys by client address, and delays the answers to an address that sends many.

    Clients with a right key are never delayed: behind a proxy that the config does not name, all have its address.
    """

    def __init__(self, counter: KeyCounter | None = None, clock: Callable[[], float] = time) -> None:
        self.count = 0
        self._counter = counter or WrongStreaks()
        self._clock = clock

    async def note(self, address: str) -> None:
        """Log a wrong key; after many in a row, only wait."""
        self.count += 1
        row = await self._counter.wrong_key(address, self._clock())
        if row <= FREE_TRIES:
            more = "; the next ones are answered slowly, and only counted" if row == FREE_TRIES else ""
            _log.warning("%s sent a wrong API key%s", address, more)
        else:
            await asyncio.sleep(min(LONGEST_DELAY, row - FREE_TRIES))


LOCAL_CALLER = Caller(may=frozenset({"score", "metrics", "admin"}))
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

    def client(self, request: web.Request) -> Caller:
        """Return the request's client; raises RequestError if a key is missing or not valid."""
        if not self._clients:
            self._reject_other_sites(request)
            return LOCAL_CALLER
        presented = key_of(request)
        if not presented:
            raise RequestError(401, "This server needs an API key. Send it as `Authorization: Bearer KEY`.")
        return self.owner(presented)

    @property
    def needs_key(self) -> bool:
        return bool(self._clients)

    def owner(self, presented: str) -> Caller:
        """Return the client of a key; raises RequestError if the key is not valid."""
        if (client := self._find(presented)) is None:
            raise RequestError(401, "The API key is not valid.", code=INVALID_KEY)
        if client.expires <= time():
            raise RequestError(401, "The API key has expired.", code="expired_api_key")
        return client

    def _find(self, presented: str) -> Caller | None:
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


def allowed(client: Caller, right: Permission) -> bool:
    return right in client.may or (right == "metrics" and "admin" in client.may)


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


def _client(name: str, key: KeyConfig) -> Caller:
    expires = key.expires.timestamp() if key.expires else math.inf
    return Caller(name, frozenset(key.may), _quota(key), key.routes, expires)


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


def address_of(request: web.Request) -> str:
    """Return the address of the request's client; "" if it is not known."""
    return request.get(ADDRESS, request.remote or "")
