"""Concurrency limits that can be resized while calls wait: a semaphore, and one that adapts to its endpoint."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from types import TracebackType

from evenhand.core.events import holding


class Gate:
    """A semaphore that can be resized; first come, first served.

    A call may need several slots. While it waits for them, smaller calls do not overtake it.
    """

    def __init__(self, size: float) -> None:
        self.size = size
        self.in_flight = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the next call has to wait."""
        return bool(self._queue) or self.in_flight + 1 > self.size

    async def acquire(self, n: int = 1) -> None:
        if not self._queue and self.in_flight + n <= self.size:
            self.in_flight += n
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append((n, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with contextlib.suppress(ValueError):
                    self._queue.remove((n, turn))
            else:  # admitted at the same moment: its slots go to the next call
                self.in_flight -= n
            self._admit()
            raise

    def release(self, n: int = 1) -> None:
        self.in_flight -= n
        if self._queue:
            self._admit()

    def resize(self, size: float) -> None:
        """Change the limit; calls already in flight are not interrupted."""
        self.size = size
        self._admit()

    def _admit(self) -> None:
        """Give free slots to waiting calls; they count as taken at once, so that no newcomer overtakes."""
        while self._queue and self.in_flight + self._queue[0][0] <= self.size:
            n, turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self.in_flight += n


class AdaptiveLimit(Gate):
    """A gate that grows while calls succeed and halves when the endpoint is overloaded.

    It doubles per round trip until the first sign of overload, and grows by one per round trip after it.
    """

    def __init__(self, maximum: int, start: int | None = None) -> None:
        self.maximum = max(1, maximum)
        # A large maximum skips the first doublings: three round trips reach it.
        super().__init__(float(min(start or max(32, maximum // 8), self.maximum)))
        self._pushed_back = False
        self._epoch = 0

    async def __aenter__(self) -> int:
        """Wait for a slot; pass the returned epoch to `push_back`."""
        with holding():
            await self.acquire()
        return self._epoch

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()

    def succeeded(self) -> None:
        """Record a successful call; the limit grows if it was reached."""
        if self.size < self.maximum and self.in_flight >= int(self.size) - 1:
            self.resize(min(self.maximum, self.size + (1 / self.size if self._pushed_back else 1)))

    def push_back(self, epoch: int) -> None:
        """Halve the limit after a sign of overload; calls that began before the last halving do not halve it again."""
        if epoch == self._epoch:
            self._epoch += 1
            self._pushed_back = True
            self.resize(max(1.0, self.size / 2))
