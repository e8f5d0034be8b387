"""The operations on the shared state, the account of one key, and what a place that holds the state must be able to do.

An operation carries its own time, so that all places count alike and tests need no clock. Accounts are pure; memory and
SQLite use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol

import orjson

from evenhand.web.keys import Per, Quota

Refused = Literal["", "at_once", "tokens", "money", "reserved", "rate"]
"""Why a request may not start; `reserved`: requests in flight may use up the rest of the budget."""
PERIODS: tuple[Per, ...] = ("day", "month", "total")
KEPT_SECONDS = 86_400.0
"""How long the live page's requests are kept."""
SILENT_SECONDS = 60.0
"""After this time without a sign, the counts of a process are no longer shown."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a request in flight holds: one of the key's places, and an estimate of what it will spend."""

    id: str
    until: float
    """When it ends by itself, because its process was killed."""
    tokens: float = 0.0
    money: float = 0.0


@dataclass(frozen=True, slots=True)
class Admit:
    """A request wants to start; the result is a `Admission`."""

    key: str
    quota: Quota
    lease: Lease
    at: float


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a request may start, and what is left for the next one."""

    refused: Refused = ""
    wait: float = 0.0
    """Seconds until the rate allows the next request."""
    requests: float = 0.0
    """How many requests the rate allows now."""
    tokens: float = 0.0
    """Spent in this period, and reserved."""


@dataclass(frozen=True, slots=True)
class Settle:
    """A request has ended: its lease is released and what it spent is counted."""

    key: str
    lease: Lease | None
    tokens: float
    money: float
    at: float


@dataclass(frozen=True, slots=True)
class WrongKey:
    """An address sent a wrong key; the result is how many it sent in a row."""

    address: str
    at: float


@dataclass(frozen=True, slots=True)
class Publish:
    """Requests for the live page, oldest first, and the counts of one process."""

    process: str
    events: Sequence[str]
    board: str
    at: float


@dataclass(frozen=True, slots=True)
class Read:
    """The live page wants everything after its first `since` requests; the result is a `SharedPage`."""

    since: int
    at: float


@dataclass(frozen=True, slots=True)
class SharedPage:
    """The live page of all processes."""

    start: str
    """Differs if the count of requests started anew."""
    count: int
    """The number of requests so far."""
    events: Sequence[str]
    """The latest ones, as far as they are kept."""
    boards: Sequence[str]


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent in one period."""

    period: str = ""
    tokens: float = 0.0
    money: float = 0.0

    def within(self, period: str) -> Spent:
        """What was spent in this period; a clock that was set back does not renew a budget."""
        return self if self.period >= period else Spent(period)


@dataclass(frozen=True, slots=True)
class ReadSpent:
    """The result is what every key has spent, by period: {key: {"day": Spent, …}}."""


Operation = Admit | Settle | WrongKey | Publish | Read | ReadSpent
AllSpent = Mapping[str, Mapping[Per, Spent]]


class SharedStore(Protocol):
    """A place that several processes share; it raises `SharedStoreError` if it cannot be reached."""

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        """Apply all operations in order, in one round trip, and return their results."""
        ...

    async def aclose(self) -> None: ...


class SharedStoreError(Exception):
    """The shared state cannot be reached; the message says why, without passwords."""


def period_of(per: Per, at: float) -> str:
    """Return the name of the day or month; names sort by time."""
    return "" if per == "total" else _date(int(at // 86_400))[: 10 if per == "day" else 7]


@lru_cache(maxsize=8)
def _date(days: int) -> str:
    """Return the date N days after 1970-01-01; cached, because every request needs it several times."""
    return (date(1970, 1, 1) + timedelta(days)).isoformat()


def renewal(per: Per, at: float) -> datetime | None:
    """Return when a budget renews; None for never."""
    day = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match per:
        case "day":
            return day + timedelta(days=1)
        case "month":
            return (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        case "total":
            return None


@dataclass(slots=True)
class Account:
    """Changes with every request; `admit` and `settle` are its only ways to change."""

    rate: float | None = None
    """The rate that `left` was counted with."""
    left: float = 0.0
    """A token bucket: how many requests the rate allows now."""
    at: float = 0.0
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])
    held_tokens: float = 0.0
    held_money: float = 0.0
    spent: dict[Per, Spent] = field(default_factory=dict[Per, Spent])

    def admit(self, ask: Admit) -> Admission:
        self._end_leases(ask.at)
        quota, spent = ask.quota, self._spent(ask.quota.per, ask.at)
        if quota.per_minute is not None:
            self._refill(quota.per_minute, quota.burst, ask.at)
        refused = self._refused(quota, spent)
        if not refused:
            if quota.per_minute is not None:
                self.left -= 1
            if quota.leases:
                self._hold(ask.lease)
        wait = (1 - self.left) * 60 / quota.per_minute if refused == "rate" and quota.per_minute else 0.0
        return Admission(refused, wait, max(0.0, self.left), spent.tokens + self.held_tokens)

    def settle(self, end: Settle) -> None:
        if end.lease is not None:
            self._release(end.lease.id)
        for per in PERIODS if end.tokens or end.money else ():
            spent = self._spent(per, end.at)
            self.spent[per] = Spent(spent.period, spent.tokens + end.tokens, spent.money + end.money)

    def _refused(self, quota: Quota, spent: Spent) -> Refused:
        if quota.tokens is not None and spent.tokens >= quota.tokens:
            return "tokens"
        if quota.money is not None and spent.money >= quota.money:
            return "money"
        if quota.at_once is not None and len(self.leases) >= quota.at_once:
            return "at_once"
        if quota.tokens is not None and spent.tokens + self.held_tokens >= quota.tokens:
            return "reserved"
        if quota.money is not None and spent.money + self.held_money >= quota.money:
            return "reserved"
        return "rate" if quota.per_minute is not None and self.left < 1 else ""

    def _refill(self, per_minute: float, burst: float, at: float) -> None:
        if self.rate != per_minute:  # new, or reloaded
            self.rate, self.left = per_minute, burst
        else:
            self.left = min(burst, self.left + max(0.0, at - self.at) * per_minute / 60)
        self.at = at

    def _spent(self, per: Per, at: float) -> Spent:
        return self.spent.get(per, Spent()).within(period_of(per, at))

    def _hold(self, lease: Lease) -> None:
        self.leases[lease.id] = lease
        self.held_tokens += lease.tokens
        self.held_money += lease.money

    def _release(self, name: str) -> None:
        if (lease := self.leases.pop(name, None)) is not None:
            self.held_tokens -= lease.tokens
            self.held_money -= lease.money
        if not self.leases:  # no rest of rounding stays
            self.held_tokens = self.held_money = 0.0

    def _end_leases(self, at: float) -> None:
        """Release the leases of killed processes; the oldest come first."""
        while self.leases and (oldest := next(iter(self.leases.values()))).until <= at:
            self._release(oldest.id)


def to_json(account: Account) -> bytes:
    return orjson.dumps(asdict(account))


def from_json(text: bytes) -> Account:
    fields: dict[str, Any] = orjson.loads(text)
    fields["leases"] = {name: Lease(**each) for name, each in fields["leases"].items()}
    fields["spent"] = {per: Spent(**each) for per, each in fields["spent"].items()}
    return Account(**fields)
