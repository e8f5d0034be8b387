"""The account of one key: its rate, its requests in flight and what it has spent. Pure; used by memory and SQLite."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from evenhand.server.state.types import PERIODS, Admit, Lease, Per, Quota, Refused, Settle, Spent, Verdict, period_of


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

    def admit(self, ask: Admit) -> Verdict:
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
        return Verdict(refused, wait, max(0.0, self.left), spent.tokens + self.held_tokens)

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
