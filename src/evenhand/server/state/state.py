"""The state of a server: in memory, or shared with other processes through a store.

Operations are queued and applied in batches, so that many requests make one round trip. While the store cannot be
reached, this process counts in its own memory, and what was spent is counted in the store as soon as it is back; with
`required`, requests that need the store are rejected instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.server.config import StateConfig
from evenhand.server.state.stores import RedisStore, SqliteStore
from evenhand.server.state.types import (
    Account,
    Admission,
    Admit,
    AllSpent,
    Operation,
    Publish,
    Read,
    ReadSpent,
    Settle,
    SharedPage,
    SharedStore,
    SharedStoreError,
    WrongKey,
)
from evenhand.web.errors import RequestError
from evenhand.web.keys import WrongStreaks

REST_SECONDS = 1.0
"""Pause before a store that failed is tried again."""
MOST_UNSAVED = 100_000
"""Requests whose spending is kept for a store that is down; then the oldest are forgotten."""
LONGEST_BATCH = 500
"""Operations in one round trip: it must be over before the store's time limit."""
_log = logging.getLogger("evenhand.server")
_Queue = list[tuple[Operation, asyncio.Future[Any] | None]]


class Memory:
    """Accounts by key, which come from the config, and wrong keys by address, which are bounded."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._wrong = WrongStreaks()

    def admit(self, ask: Admit) -> Admission:
        return self._account(ask.key).admit(ask)

    def settle(self, end: Settle) -> None:
        self._account(end.key).settle(end)

    def wrong_key(self, wrong: WrongKey) -> int:
        return self._wrong.add(wrong.address, wrong.at)

    def spent(self) -> AllSpent:
        return {key: account.spent for key, account in self._accounts.items() if account.spent}

    def _account(self, key: str) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account()
        return account


class State:
    """Counts for this process, and for all others that use the same store."""

    def __init__(
        self, store: SharedStore | None = None, *, required: bool = False, may_come_later: bool = False
    ) -> None:
        self.required = required
        self._may_come_later = may_come_later
        self.down = ""
        """Why the store cannot be reached; empty if it can be, or if there is no store."""
        self.failures = 0
        """How often the store failed."""
        self._store = store
        self._memory = Memory()
        self._queue: _Queue = []
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def is_shared(self) -> bool:
        return self._store is not None

    async def start(self) -> None:
        """Try the store once; raises UsageError if it does not work and nothing will change that."""
        if self._store is not None:
            try:
                await self._asked(ReadSpent())
            except SharedStoreError as error:
                if not self._may_come_later:
                    raise UsageError(f"The state file cannot be used: {error}.") from error

    async def admit(self, ask: Admit) -> Admission:
        """Decide whether a request may start; the caller settles it if it may."""
        if self._store is None:
            return self._memory.admit(ask)
        try:
            return await self._asked(ask)
        except SharedStoreError as error:
            if self.required:
                raise RequestError(
                    503,
                    "This server cannot check the limits of the key at the moment.",
                    code="state_unavailable",
                    retry_after=REST_SECONDS,
                    detail=f"The shared state cannot be reached: {error}.",
                ) from error
            return self._memory.admit(ask)
        except asyncio.CancelledError:  # it may have been admitted all the same
            self._put(Settle(ask.key, ask.lease, 0, 0, ask.at))
            raise

    def settle(self, end: Settle) -> None:
        """Release what a request holds and record what it spent, in the background."""
        self._memory.settle(end)
        if self._store is not None:
            self._put(end)

    async def wrong_key(self, address: str, at: float) -> int:
        """Count a wrong key and return how many came in a row from this address."""
        wrong = WrongKey(address, at)
        row = self._memory.wrong_key(wrong)
        if self._store is not None:
            with contextlib.suppress(SharedStoreError):
                return await self._asked(wrong)
        return row

    def publish(self, process: str, events: Sequence[str], board: str) -> None:
        """Show requests, and the counts of this process, on the live pages of all."""
        self._put(Publish(process, events, board, time()))

    async def read(self, since: int) -> SharedPage:
        """Return the requests of all processes after the first `since`; raises StoreError."""
        return await self._asked(Read(since, time()))

    async def spent(self) -> AllSpent:
        if self._store is not None:
            with contextlib.suppress(SharedStoreError):
                return await self._asked(ReadSpent())
        return self._memory.spent()

    async def aclose(self) -> None:
        """Apply what is queued, and disconnect."""
        self._closing.set()
        self._wake.set()
        if self._running is not None:  # not cancelled, so that no batch is applied twice
            await self._running
        if self._queue:
            _log.error("%d requests could not be counted in the shared state", len(self._queue))
        if self._store is not None:
            await self._store.aclose()

    async def _asked(self, operation: Operation) -> Any:
        if self.down:
            raise SharedStoreError(self.down)
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(operation, result)
        return await result

    def _put(self, operation: Operation, result: asyncio.Future[Any] | None = None) -> None:
        self._queue.append((operation, result))
        self._wake.set()
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while not self._closing.is_set() or (self._queue and not self.down):
            if self.down:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REST_SECONDS):
                        await self._closing.wait()
            else:
                await self._wake.wait()
            await self._apply()

    async def _apply(self) -> None:
        """Apply the queue, or the first part of a long one, as one batch."""
        assert self._store is not None
        batch, self._queue = self._queue[:LONGEST_BATCH], self._queue[LONGEST_BATCH:]
        if not self._queue:
            self._wake.clear()
        try:
            results = await self._store.apply([operation for operation, _ in batch])
        except Exception as error:
            self._failed(batch, str(error) if isinstance(error, SharedStoreError) else type(error).__name__)
            return
        if self.down:
            _log.warning("The shared state is back; %d operations had to wait", len(batch) + len(self._queue))
        self.down = ""
        for (_, future), result in zip(batch, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)

    def _failed(self, batch: _Queue, why: str) -> None:
        if not self.down:
            does = "requests of limited keys are rejected" if self.required else "this process counts alone"
            _log.error("The shared state cannot be reached (%s); until it is back, %s", why, does)
        self.down = why
        self.failures += 1
        for _, future in batch:
            if future is not None and not future.done():
                future.set_exception(SharedStoreError(why))
        unsaved = [each for each in batch if isinstance(each[0], Settle)]
        self._queue = (unsaved + self._queue)[-MOST_UNSAVED:]


async def try_state(config: StateConfig) -> None:
    """Raise UsageError if the state file cannot be used."""
    state = load_state(config)
    try:
        await state.start()
    finally:
        await state.aclose()


def load_state(config: StateConfig, run_file: Path | None = None) -> State:
    """Return the state that the config names; without one, that of `run_file`, which the workers of a server share."""
    if url := config.redis_url():
        return State(RedisStore(url), required=config.required, may_come_later=True)
    file = Path(config.file).expanduser() if config.file else run_file
    if file is None:
        return State()
    if not file.parent.is_dir():
        raise UsageError(f"The folder of the state file {file} does not exist. Create it.")
    return State(SqliteStore(file), required=config.required)
