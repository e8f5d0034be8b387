"""What all handlers of the workbench share: the index, the workers, the started runs, and how a page is sent."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.errors import EvenhandError
from evenhand.server.errors import RequestError
from evenhand.show.markup import Html, Node, join, tag
from evenhand.ui import site, work
from evenhand.ui.background import Background
from evenhand.ui.index import Chosen, Index, Row
from evenhand.ui.jobs import Jobs
from evenhand.ui.layout import END, beginning, page
from evenhand.ui.pages.elements import computing, problem

LINKS = (("/", "Runs"), ("/boards", "Leaderboards"), ("/history", "Over time"), ("/start", "Start"))
_QUICK = 0.2
"""Seconds; a page that takes longer is sent in two parts, the first at once."""
_log = logging.getLogger("evenhand.ui")
_KEPT = 64
"""Reports and comparisons in memory."""


class Desk:
    """Everything that the handlers need; `close` ends what was started."""

    site: site.Site

    def __init__(self, folder: Path) -> None:
        self.index = Index(folder)
        self.workers = work.Workers()
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

    async def row(self, request: web.Request, name: str) -> Row:
        await self.refresh()
        run_id = request.query.get(name, "")
        if (row := await self.index.read(run_id)) is None:
            said = self.jobs.said(run_id)
            raise RequestError(404, said or "There is no such run in this folder. It may have been moved.")
        return row

    async def chosen(self, request: web.Request) -> list[Chosen]:
        await self.refresh()
        keys = dict.fromkeys(key for key in request.query.getall("arm", []) if key)
        return [each for key in keys if (each := self.index.arm(key)) is not None]

    async def computed(self, what: str, rows: Sequence[Row], function: Any, *args: Any) -> Any:
        """Return what a worker computes of these runs; kept until one of them changes."""
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
