"""Rate limit, backoff and user agent of the providers that query public servers."""

from __future__ import annotations

import random

from evenhand.core import http
from evenhand.core.version import versions

LONGEST_WAIT = 30.0
"""Seconds; a server whose Retry-After is longer counts as down."""


def user_agent() -> str:
    return f"evenhand/{versions().get('evenhand', 'unknown')}"


class Pace(http.Pace):
    """A rate limit of one request every `gap` seconds, with backoff between retries."""

    async def back_off(self, failures: int, retry_after: float | None = None) -> None:
        """Wait after failure number `failures` (from 1) for `retry_after`, or exponentially longer; with jitter."""
        if retry_after is not None:
            await self._sleep(retry_after * random.uniform(1, 1.2))
        else:
            await self._sleep(min(LONGEST_WAIT, 2.0**failures) * random.uniform(0.5, 1))
