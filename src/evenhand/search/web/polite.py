"""What providers that ask strangers' servers share: a pace, waits between tries that grow, and a name."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC

from evenhand.version import versions

LONGEST_WAIT = 30.0
"""A server that asks for a longer pause is taken as down; the caller goes on without it."""

Sleep = Callable[[float], Awaitable[object]]
Clock = Callable[[], float]


def user_agent() -> str:
    """The name under which servers are asked."""
    return f"evenhand/{versions().get('evenhand', 'unknown')}"


class Pace:
    """Lets one request pass every `gap` seconds, in the order of asking; and waits between tries."""

    def __init__(self, gap: float, sleep: Sleep = asyncio.sleep, clock: Clock = time.monotonic) -> None:
        self.gap = gap
        self._sleep = sleep
        self._clock = clock
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next free place; it is taken before the wait, so that two callers never share one."""
        now = self._clock()
        start = max(now, self._next)
        self._next = start + self.gap
        if start > now:
            await self._sleep(start - now)

    async def back_off(self, failures: int, asked: float | None = None) -> None:
        """Wait after the failure with this number, from 1: as long as asked, else twice as long each time; jittered."""
        longest = asked if asked is not None else min(LONGEST_WAIT, 2.0**failures)
        await self._sleep(longest * random.uniform(1, 1.2) if asked is not None else longest * random.uniform(0.5, 1))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that a reply asks for, as a number or as a date."""
    value = headers.get("Retry-After")
    if value is None:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(ValueError):
        date = email.utils.parsedate_to_datetime(value)
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    return None
