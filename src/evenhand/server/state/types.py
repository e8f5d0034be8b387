"""The operations on the shared state, and what a place that holds it must be able to do.

An operation carries its own time, so that all places count alike and tests need no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol

Per = Literal["day", "month", "total"]
"""The period after which a budget renews, in UTC."""
Refused = Literal["", "at_once", "tokens", "money", "reserved", "rate"]
"""Why a request may not start; `reserved`: requests in flight may use up the rest of the budget."""
PERIODS: tuple[Per, ...] = ("day", "month", "total")
BURST_SECONDS = 10.0
"""The burst of a key: as many requests as its rate allows in this time."""
FORGET_SECONDS = 600.0
"""An address that sends no wrong key for this time starts anew."""
KEPT_SECONDS = 86_400.0
"""How long the live page's requests are kept."""
SILENT_SECONDS = 60.0
"""After this time without a sign, the counts of a process are no longer shown."""


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
class Lease:
    """What a request in flight holds: one of the key's places, and an estimate of what it will spend."""

    id: str
    until: float
    """When it ends by itself, because its process was killed."""
    tokens: float = 0.0
    money: float = 0.0


@dataclass(frozen=True, slots=True)
class Admit:
    """A request wants to start; the result is a `Verdict`."""

    key: str
    quota: Quota
    lease: Lease
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
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
    """The live page wants everything after its first `since` requests; the result is a `Shown`."""

    since: int
    at: float


@dataclass(frozen=True, slots=True)
class Shown:
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


class Store(Protocol):
    """A place that several processes share; it raises `StoreError` if it cannot be reached."""

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        """Apply all operations in order, in one round trip, and return their results."""
        ...

    async def aclose(self) -> None: ...


class StoreError(Exception):
    """The shared state cannot be reached; the message says why, without passwords."""


def period_of(per: Per, at: float) -> str:
    """Return the name of the day or month; names sort by time."""
    return "" if per == "total" else _date(int(at // 86_400))[: 10 if per == "day" else 7]


@lru_cache(maxsize=8)
def _date(days: int) -> str:
    """Return the date so many days after 1970 began; every request asks for it several times."""
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
