"""The state of several hosts, in Redis; a batch of operations is one call of a script that Redis runs atomically."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from evenhand.core.errors import UsageError, needs_extra
from evenhand.server.state.types import (
    KEPT_SECONDS,
    PERIODS,
    SILENT_SECONDS,
    Admission,
    Admit,
    AllSpent,
    Lease,
    Operation,
    Publish,
    Read,
    ReadSpent,
    Settle,
    SharedPage,
    SharedStoreError,
    Spent,
    WrongKey,
    period_of,
)
from evenhand.server.telemetry.events import KEPT
from evenhand.web.keys import FORGET_SECONDS, Per

SECONDS = 1.0
"""Time limit of a call: requests wait for it."""
_PREFIX = "{evenhand}"
_SCRIPT = (files("evenhand.server.state") / "redis.lua").read_text()
_HASH = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_CONSTANTS = (KEPT, int(KEPT_SECONDS), int(FORGET_SECONDS), int(SILENT_SECONDS))


class RedisStore:
    """Connects with the first operation; `url` may hold a password, which no message shows."""

    def __init__(self, url: str) -> None:
        with needs_extra("a state in Redis", "redis"):
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        self._place = _place(url)
        try:
            self._client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 1),
                decode_responses=True,
            )
        except ValueError as error:
            raise UsageError("The state's Redis has no valid URL. Write redis://HOST:PORT/0.") from error

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        from redis.exceptions import NoScriptError, RedisError

        arguments = (1, _PREFIX, orjson.dumps(list(map(_fields, operations))), uuid.uuid4().hex, *_CONSTANTS)
        try:
            try:
                results = await self._client.evalsha(_HASH, *arguments)
            except NoScriptError:
                results = await self._client.eval(_SCRIPT, *arguments)
        except (RedisError, OSError) as error:
            raise SharedStoreError(f"Redis at {self._place}: {type(error).__name__}") from error
        return [_result(operation, each) for operation, each in zip(operations, results, strict=True)]

    async def aclose(self) -> None:
        await self._client.aclose()


def _place(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or parts.path}:{parts.port or 6379}"
    except ValueError as error:
        raise UsageError("The state's Redis has no valid URL. Write redis://HOST:PORT/0.") from error


def _fields(operation: Operation) -> dict[str, Any]:
    match operation:
        case Admit(key, quota, lease, at):
            fields: dict[str, Any] = {
                "kind": "admit",
                "key": key,
                "at": at,
                "per_minute": quota.per_minute,
                "burst": quota.burst,
                "at_once": quota.at_once,
                "tokens": quota.tokens,
                "money": quota.money,
                "per": quota.per,
                "period": period_of(quota.per, at),
                "lease": _member(lease) if quota.leases else None,
                "until": lease.until,
                "held_tokens": lease.tokens,
                "held_money": lease.money,
            }
        case Settle(key, lease, tokens, money, at):
            periods = {per: period_of(per, at) for per in PERIODS} if tokens or money else {}
            fields = {"kind": "settle", "key": key, "tokens": tokens, "money": money, "periods": periods}
            fields["lease"] = lease and _member(lease)
        case WrongKey(address):
            fields = {"kind": "wrong_key", "address": address}
        case Publish(process, events, board):
            fields = {"kind": "publish", "process": process, "events": events, "board": board}
        case Read(since):
            fields = {"kind": "read", "since": since}
        case ReadSpent():
            fields = {"kind": "spent"}
    return {name: value for name, value in fields.items() if value is not None}  # Lua's JSON has no useful null


def _member(lease: Lease) -> str:
    return f"{lease.id}|{lease.tokens!r}|{lease.money!r}"


def _result(operation: Operation, value: Any) -> Any:
    match operation:
        case Read():
            return SharedPage(*value)
        case ReadSpent():
            return _spent(value)
        case Admit():
            return Admission(*orjson.loads(value))
        case _:
            return orjson.loads(value)


def _spent(rows: Sequence[tuple[str, Per, str, str, str]]) -> AllSpent:
    found: dict[str, dict[Per, Spent]] = {}
    for key, per, period, tokens, money in sorted(rows):
        found.setdefault(key, {})[per] = Spent(period, float(tokens), float(money))
    return cast(AllSpent, found)
