"""Computes the estimates of all runs in the background, newest first, for leaderboards and headlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.ui import work
from evenhand.ui.index import Index, Row

_WHAT = "measured"


class Background:
    """One run at a time, so that a page that somebody waits for finds a free worker."""

    def __init__(self, index: Index, workers: work.Workers) -> None:
        self.found: dict[str, dict[str, Any]] = index.all_found(_WHAT)
        """Run → what `work.measured` found of it; {"fault": …} for a run that cannot be studied."""
        self._stamps = {run_id: index.rows[run_id].stamp for run_id in self.found}
        self._index = index
        self._workers = workers
        self._task: asyncio.Task[None] | None = None
        self._going: dict[str, asyncio.Future[Any]] = {}

    @property
    def pending(self) -> int:
        return len(self._wanted())

    def pending_of(self, benchmark: str) -> int:
        return sum(row.benchmark == benchmark for row in self._wanted())

    def go_on(self) -> None:
        """Begin with what is missing, unless that is being done."""
        if (self._task is None or self._task.done()) and self._wanted():
            self._task = asyncio.create_task(self._compute())

    def close(self) -> None:
        for each in (self._task, *self._going.values()):
            if each is not None:
                each.cancel()

    async def once(self, key: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """Await what `make` returns; pages that ask for the same at the same time share it."""
        if key not in self._going:
            self._going[key] = asyncio.ensure_future(make())
            self._going[key].add_done_callback(lambda _: self._going.pop(key, None))
        return await asyncio.shield(self._going[key])

    def _wanted(self) -> list[Row]:
        """Return the runs to be computed, newest first; a run that is going on would change at once."""
        return [
            row
            for row in self._index.sorted()
            if row.done and not row.running and not row.fault and self._stamps.get(row.id) != row.stamp
        ]

    async def _compute(self) -> None:
        while wanted := self._wanted():
            row = wanted[0]
            try:
                found = await self._workers.run(work.measured, self._index.path(row))
            except EvenhandError as error:
                found = {"fault": str(error)}
            self.found[row.id] = found
            self._stamps[row.id] = row.stamp
            self._index.keep_found(_WHAT, row.id, row.stamp, found)
