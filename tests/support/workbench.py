"""The workbench of `evenhand ui` over real runs, served on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer

from evenhand.core.errors import EvenhandError
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.ui import work
from evenhand.ui.workbench import Workbench

HTML = {"Accept": "text/html"}


class Threads(work.WorkerPool):
    """The work in a thread of this process: new processes take a second each."""

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        result, failure = await asyncio.to_thread(work._guarded, function, args, kwargs)
        if failure is not None:
            raise EvenhandError(failure)
        return result


async def make_run(folder: Path, **plan: Any) -> None:
    fields = {"benchmark": "bbq_builtin", "models": ["fake/A"], "limit": 12, **plan}
    await Runner(make_plan(fields), folder, Settings()).run()


class Pages:
    """A workbench that is being served, and a client of it."""

    def __init__(self, workbench: Workbench, client: aiohttp.ClientSession, url: str) -> None:
        self.workbench = workbench
        self.client = client
        self.url = url

    async def get(self, path: str, expected: int = 200, /, **query: Any) -> str:
        async with self.client.get(path, params=query, headers=HTML) as response:
            text = await response.text()
        assert response.status == expected, text[-600:]
        return text

    async def post(self, path: str, expected: int = 200, /, **form: Any) -> tuple[str, str]:
        """The text and where it was redirected to."""
        form["token"] = await self.token()
        async with self.client.post(path, data=form, headers=HTML, allow_redirects=False) as response:
            text = await response.text()
        assert response.status == expected, text[-600:]
        return text, response.headers.get("Location", "")

    async def token(self) -> str:
        return (await self.get("/")).partition('name="token" content="')[2].partition('"')[0]

    async def all_measured(self) -> None:
        """Wait until the background has computed every run."""
        await self.get("/")
        while self.workbench.index.unread or self.workbench.background.pending:
            await asyncio.sleep(0.05)
            await self.get("/state.json")


@asynccontextmanager
async def opened(folder: Path, *, processes: bool = False, **options: Any) -> AsyncIterator[Pages]:
    workbench = Workbench(folder, **options)
    if not processes:
        workbench.workers = workbench.background._workers = Threads()
    try:
        async with TestServer(workbench.site.app()) as server:
            url = str(server.make_url(""))
            async with aiohttp.ClientSession(url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
                yield Pages(workbench, client, url.rstrip("/"))
    finally:
        await workbench.close()
