"""A worker: a Ray actor that runs a shard of a plan on a store of its own, and hands every committed row to the driver.

A row counts as committed when the driver has it, so a call is repeated only if it was in flight when its worker died.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evenhand.core.events import Activity
from evenhand.core.files import scratch
from evenhand.core.progress import Progress
from evenhand.models.ray.connect import enter
from evenhand.models.ray.replica import Failure
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.store import FILE_NAME, Rows, Store

_SHARED = ("learned", "caveats", "notes", "scoring")
"""Facts of a shard that belong to the run."""


@dataclass(slots=True)
class Page:
    """What a worker has done since its last page."""

    number: int
    rows: Rows = field(default_factory=Rows)
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class News:
    """The pages that the driver does not have yet, and how the worker is doing."""

    pages: list[Page]
    activity: tuple[int, int, int]
    """Calls, calls that are held, and retries."""
    ended: bool = False
    stopped: str | None = None
    """Why it ended early."""
    failure: Failure | None = None


class _Outbox:
    """Pages that wait for the driver to say that it has them."""

    def __init__(self) -> None:
        self._pages: deque[tuple[Page, asyncio.Future[None]]] = deque()
        self._count = 0
        self._news = asyncio.Event()

    def add(self, rows: Rows | None = None, facts: dict[str, Any] | None = None) -> asyncio.Future[None]:
        """Add a page; the result is there when the driver has it."""
        self._count += 1
        taken = asyncio.get_running_loop().create_future()
        self._pages.append((Page(self._count, rows or Rows(), facts or {}), taken))
        self._news.set()
        return taken

    async def pages(self, acknowledged: int, *, wait: bool) -> list[Page]:
        """Drop what the driver has, and return all other pages; if there are none, `wait` for news."""
        while self._pages and self._pages[0][0].number <= acknowledged:
            taken = self._pages.popleft()[1]
            if not taken.done():
                taken.set_result(None)
        if not self._pages and wait:
            self._news.clear()
            await self._news.wait()
        return [page for page, _ in self._pages]

    def wake(self) -> None:
        self._news.set()


class _MirroredStore(Store):
    """A store whose rows count as committed when the driver has them, too."""

    def __init__(self, directory: Path, *, outbox: _Outbox, **options: Any) -> None:
        super().__init__(directory, **options)
        self._outbox = outbox

    def put(self, **facts: Any) -> None:
        super().put(**facts)
        if shared := {name: value for name, value in facts.items() if name in _SHARED}:
            self._outbox.add(facts=shared)

    async def _sent(self, rows: Rows) -> None:
        await self._outbox.add(rows)


class Worker:
    """The actor. Its methods are called in this order: `describe`, `seed` for each piece of a file, `begin`, `news`."""

    def __init__(self, plan: Mapping[str, Any], settings: Settings, folder: str) -> None:
        enter(folder)
        self._plan = plan
        self._settings = settings
        self._scratch = ExitStack()
        self._directory = self._scratch.enter_context(scratch())
        self._progress = Progress()
        self._outbox: _Outbox | None = None
        self._work: asyncio.Task[None] | None = None
        self._ended: tuple[str | None, Failure | None] | None = None

    async def describe(self) -> dict[str, Any] | Failure:
        """The facts of the plan as this machine sees them: data, models, versions and code."""
        try:
            return await Runner(make_plan(self._plan), self._directory, self._settings).describe()
        except Exception as error:
            return Failure.of(error)

    async def seed(self, piece: bytes) -> None:
        """Take the next piece of the shard's store, which holds its samples and what was done of them."""
        with (self._directory / FILE_NAME).open("ab") as file:
            file.write(piece)

    async def begin(self, settings: Settings) -> None:
        """Run the shard, in the background."""
        self._outbox = _Outbox()
        self._work = asyncio.ensure_future(self._run(settings, self._outbox))

    async def news(self, acknowledged: int) -> News:
        """Wait for pages after the acknowledged one, or for the end."""
        assert self._outbox is not None
        pages = await self._outbox.pages(acknowledged, wait=self._ended is None)
        stopped, failure = self._ended or (None, None)
        ended = self._ended is not None and not pages
        activity: Activity = self._progress.activity
        if ended:
            self._scratch.close()
        return News(pages, (activity.calls, activity.held, activity.retries), ended, stopped, failure)

    async def _run(self, settings: Settings, outbox: _Outbox) -> None:
        runner = Runner(
            make_plan(self._plan), self._directory, settings, self._observe, partial(_MirroredStore, outbox=outbox)
        )
        stopped: str | None = None
        failure: Failure | None = None
        try:
            stopped = (await runner.run()).stopped
        except Exception as error:
            failure = Failure.of(error)
        finally:
            self._ended = (stopped, failure)
            with contextlib.suppress(RuntimeError):
                outbox.wake()

    def _observe(self, progress: Progress) -> None:
        self._progress = progress
