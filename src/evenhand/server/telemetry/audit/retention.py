"""The clock by which old rows are deleted. It distrusts the system's clock, which may be wrong."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

CATCH_UP = 2.0
"""How fast this clock may run compared to the time that passes, until it has caught up with the system's clock."""
BEHIND_SECONDS = 3600.0
"""A larger difference to the system's clock is logged."""
_log = logging.getLogger("evenhand.server")


class RetentionClock:
    """Never ahead of the system's clock, and never faster than twice the time that passes while the server runs.

    So a system clock that is wrong for an hour deletes at most one hour of rows too early, whatever it shows. After a
    long time without a running server, rows are deleted late until this clock has caught up.
    """

    def __init__(
        self,
        reached: float | None = None,
        wall: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._passed = wall, passed
        self.reached = wall() if reached is None else reached
        """The latest time that is certain, in seconds since 1970; it is stored for the next start."""
        self._at = passed()
        self._reported = False

    def now(self) -> float:
        wall, at = self._wall(), self._passed()
        self.reached = max(self.reached, min(wall, self.reached + CATCH_UP * (at - self._at)))
        self._at = at
        behind = wall - self.reached
        if behind > BEHIND_SECONDS and not self._reported:
            _log.warning(
                "The system's clock is %.0f hours ahead of the time that the audit file has seen; until that time has "
                "passed, its rows are deleted late",
                behind / 3600,
            )
        self._reported = behind > BEHIND_SECONDS
        return min(wall, self.reached)
