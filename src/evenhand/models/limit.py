"""Limits on what is under way: as many calls as an endpoint takes, found by trying, and the slots of a local engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType


class AdaptiveLimit:
    """A semaphore whose size grows while calls succeed and halves when the endpoint pushes back.

    Growth doubles the size per round trip until the first push-back, and adds one per round trip after it.
    """

    def __init__(self, maximum: int, start: int | None = None) -> None:
        self.maximum = max(1, maximum)
        # Whoever allows hundreds of calls is spared the first doublings: three round trips lead to the maximum.
        self.size = float(min(start or max(32, maximum // 8), self.maximum))
        self.in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._pushed_back = False
        self._epoch = 0

    async def __aenter__(self) -> int:
        """Wait for room, first come, first served; the returned epoch goes back into `push_back`."""
        if self.in_flight < int(self.size):
            self.in_flight += 1
            return self._epoch
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            else:  # room was handed over in the same moment: pass it on
                self.in_flight -= 1
                self._wake()
            raise
        return self._epoch

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        """A call went well: make room for more, if the room there is was used."""
        if self.size < self.maximum and self.in_flight >= int(self.size) - 1:
            self.size = min(self.maximum, self.size + (1 / self.size if self._pushed_back else 1))
            self._wake()

    def push_back(self, epoch: int) -> None:
        """The endpoint said 'too many'; calls that began before the last halving do not count again."""
        if epoch == self._epoch:
            self._epoch += 1
            self._pushed_back = True
            self.size = max(1.0, self.size / 2)

    def _wake(self) -> None:
        """Hand free room to those who wait; it counts as taken at once, so that no newcomer slips in before them."""
        while self._waiters and self.in_flight < int(self.size):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.in_flight += 1


class Slots:
    """A fair semaphore that hands out several slots at once: first come, first served."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, n: int) -> None:
        place = (n, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._hand_out()
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            else:
                self._free += n
            self._hand_out()
            raise

    def release(self, n: int) -> None:
        self._free += n
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            n, place = self._waiting.popleft()
            self._free -= n
            if not place.cancelled():
                place.set_result(None)
