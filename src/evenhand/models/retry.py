"""When to try again, and how long to wait before."""

from __future__ import annotations

import contextlib
import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC

from evenhand.errors import EndpointError, ModelError

LONGEST_WAIT = 300.0
"""An endpoint that asks for a longer pause is taken as down."""


class Retryable(Exception):  # noqa: N818 - a signal between two functions, not an error for users
    """A call failed in a way that may pass; `error` is what to raise when it does not, after `most` retries."""

    def __init__(self, error: ModelError, wait: float | None = None, most: float = float("inf")) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait
        self.most = most


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter; a wait that the server names is obeyed, with jitter on top."""

    retries: int
    base: float = 0.5
    ceiling: float = 30.0

    def delay(self, failures: int, asked: float | None, error: ModelError) -> float:
        """Seconds before attempt number `failures` + 1."""
        if asked is None:
            return random.uniform(0, min(self.ceiling, self.base * 2**failures))
        if asked > LONGEST_WAIT:
            raise EndpointError(f"{error} It asks for a pause of {asked:,.0f} s; resume the run then.") from error
        return asked + random.uniform(0, min(1.0, 0.1 * asked + self.base / 10))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait that the reply's headers ask for, in seconds."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        with contextlib.suppress(ValueError):
            return max(0.0, float(value) * scale)
        with contextlib.suppress(ValueError):
            date = email.utils.parsedate_to_datetime(value)
            return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    return None
