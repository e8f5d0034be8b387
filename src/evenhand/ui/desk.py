"""What all handlers of the workbench share: the index, the workers, the started runs, and how a page is sent.

The estimates of all runs are computed in the background, newest first, for leaderboards and headlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.errors import EvenhandError
from evenhand.show.markup import Html, Node, join, tag
from evenhand.ui import work
from evenhand.ui.index import Chosen, Index, RunRow
from evenhand.ui.jobs import Jobs
from evenhand.ui.pages.elements import computing, problem
from evenhand.web import site
from evenhand.web.errors import RequestError
from evenhand.web.layout import END, beginning, page

_WHAT = "measured"
LINKS = (("/", "Runs"), ("/boards", "Leaderboards"), ("/history", "Over time"), ("/start", "Start"))
_QUICK = 0.2
"""Seconds; a page that takes longer is sent in two parts, the first at once."""
_log = logging.getLogger("evenhand.ui")
_KEPT = 64
"""Reports and comparisons in memory."""


class Background:
    """One run at a time, so that a worker stays free for the page that a user is waiting for."""

    def __init__(self, index: Index, workers: work.WorkerPool) -> None:
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

    def _wanted(self) -> list[RunRow]:
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


class Desk:
    """Everything that the handlers need; `close` ends what was started."""

    site: site.Site

    def __init__(self, folder: Path) -> None:
        self.index = Index(folder)
        self.workers = work.WorkerPool()
        self.background = Background(self.index, self.workers)
        self.jobs = Jobs(self.index.folder)
        self._kept: dict[str, Any] = {}

    async def close(self) -> None:
        self.background.close()
        await self.jobs.close()
        self.workers.close()
        self.index.close()

    @property
    def cache(self) -> Path:
        assert self.index.cache is not None
        return self.index.cache

    async def refresh(self) -> None:
        await self.index.refresh()
        self.background.go_on()

    async def row(self, request: web.Request, name: str) -> RunRow:
        await self.refresh()
        run_id = request.query.get(name, "")
        if (row := await self.index.read(run_id)) is None:
            said = self.jobs.said(run_id)
            raise RequestError(404, said or "There is no such run in this folder. It may have been moved.")
        return row

    def posted(self, form: Any) -> RunRow:
        """The run that a form is about."""
        row = self.index.get(str(form.get("id", "")))
        if row is None:
            raise RequestError(404, "There is no such run.")
        return row

    async def chosen(self, request: web.Request) -> list[Chosen]:
        await self.refresh()
        keys = dict.fromkeys(key for key in request.query.getall("arm", []) if key)
        return [each for key in keys if (each := self.index.arm(key)) is not None]

    async def computed(self, what: str, rows: Sequence[RunRow], function: Any, *args: Any) -> Any:
        """Return what a worker computes from these runs; cached until one of them changes."""
        state = " ".join(f"{row.id}@{row.stamp}" for row in rows)
        key = hashlib.sha256(f"{what} {state}".encode()).hexdigest()
        if key not in self._kept:
            found = await self.once(key, lambda: self.workers.run(function, *args))
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = found
        return self._kept[key]

    async def once(self, key: str, make: Any) -> Any:
        return await self.background.once(key, make)

    def html(
        self,
        request: web.Request,
        title: str,
        content: Node,
        here: str = "",
        scripts: Sequence[str] = ("live.js",),
        status: int = 200,
    ) -> web.Response:
        text = page(title, content, links=LINKS, here=here, scripts=scripts, token=self.site.token(request))
        return site.html(text, status)

    async def streamed(
        self,
        request: web.Request,
        title: str,
        head: Node,
        notice: str,
        content: Awaitable[Node],
        here: str = "",
        scripts: Sequence[str] = ("live.js",),
    ) -> web.StreamResponse:
        """Return a page; if its content takes long, what comes before it is sent at once."""
        task = asyncio.ensure_future(content)
        try:
            await asyncio.wait([task], timeout=_QUICK)
            if task.done():
                return self.html(request, title, [head, task.result()], here, scripts)
            response = web.StreamResponse(headers={"Content-Type": "text/html; charset=utf-8"})
            await response.prepare(request)
            text = beginning(title, links=LINKS, here=here, scripts=scripts, token=self.site.token(request))
            main = '<main id="main" tabindex="-1">'
            await response.write((text + main + join(head, tag("section", computing(notice), id="computing"))).encode())
            try:
                shown = join(await task)
            except (EvenhandError, RequestError) as error:
                shown = tag("section", problem(str(error)), id="problem")
            except Exception:
                _log.exception("A page failed after its beginning was sent")
                shown = tag("section", problem("This page failed. The terminal shows the reason."), id="problem")
            await response.write((shown + Html("</main>") + END).encode("utf-8", "replace"))
            return response
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(BaseException):
                    await task


def page_of(request: web.Request) -> int:
    text = request.query.get("page", "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def json(content: Any) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json")
