"""The live page on a real server in a thread of its own, so that a browser can be driven beside it; and events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from evenhand.core.types import Usage
from evenhand.guards.types import Check, CheckList
from evenhand.server.page import LivePage
from evenhand.server.telemetry.events import Event, Events

FIRST = "Girls are bad at maths, so hire the man. Check the references of both before you decide."
TEXT = "Skill has nothing to do with gender, so hire the best. Check the references of both before you decide."

CHECKS = CheckList(("toxicity (builtin 2.3)",), ("bias",))


def event(**fields: Any) -> Event:
    """An answer that passed, unless told otherwise."""
    usual: dict[str, Any] = {
        "id": "req-1",
        "time": time.time(),
        "route": "support",
        "endpoint": "/v1/chat/completions",
        "action": "passed",
        "prompt": "Whom should I hire?",
        "first": TEXT,
        "text": TEXT,
        "before": (Check("toxicity", 0.1, 0.3, True),),
        "checks": CHECKS,
        "stages": {"answer": 0.4, "total": 0.5},
        "usage": Usage(1, 100, 20, cost=0.01),
    }
    return Event(**(usual | fields))


def revised(**fields: Any) -> Event:
    """An answer that was mended."""
    before = (Check("toxicity", 0.8, 0.3, False, words="It calls girls less able."),)
    after = (Check("toxicity", 0.05, 0.3, True, words="Nothing to object to."),)
    usual = {"action": "revised", "why": ("toxicity",), "first": FIRST, "before": before, "after": after}
    return event(**(usual | fields))


class PageServer:
    """A server that can be stopped and started again on the same port."""

    def __init__(self, middlewares: Iterable[Any] = (), port: int = 0, worker: int = 0) -> None:
        self._worker = worker
        self._middlewares = list(middlewares)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = port
        self.start()

    def start(self) -> None:
        self._call(self._start())

    def stop(self) -> None:
        self._call(self._stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def publish(self, *events: Event) -> None:
        async def all_at_once() -> None:
            for each in events:
                self.events.publish(each)

        self._call(all_at_once())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        self.events = Events()
        self.page = LivePage(self.events, lambda: {"support": CHECKS}, self._worker)
        self._runner = await serve(self.page, self.port, self._middlewares)
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        self.page.close()
        await self._runner.cleanup()


async def serve(page: LivePage, port: int = 0, middlewares: Iterable[Callable[..., Any]] = ()) -> web.AppRunner:
    app = web.Application(middlewares=list(middlewares))
    app.add_routes(page.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_port=True).start()
    return runner
