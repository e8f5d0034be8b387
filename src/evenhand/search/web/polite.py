"""What the providers that ask strangers' servers share: a pace, backoff and a user agent."""

from __future__ import annotations

import random

from evenhand import http
from evenhand.version import versions

LONGEST_WAIT = 30.0
"""Seconds; a server that asks for a longer pause counts as down, and the caller goes on without it."""


def user_agent() -> str:
    return f"evenhand/{versions().get('evenhand', 'unknown')}"


class Pace(http.Pace):
    """Lets one request pass every `gap` seconds, and waits between retries."""

    async def back_off(self, failures: int, asked: float | None = None) -> None:
        """Wait after failure number `failures`, from 1: as long as asked, else exponentially longer; with jitter."""
        longest = asked if asked is not None else min(LONGEST_WAIT, 2.0**failures)
        await self._sleep(longest * random.uniform(1, 1.2) if asked is not None else longest * random.uniform(0.5, 1))
