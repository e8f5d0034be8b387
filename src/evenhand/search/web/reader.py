"""Extracts page texts in a separate process, which is killed when a page takes too long.

A page within all limits can keep an HTML parser busy for minutes (a tag with 150,000 attributes is enough) or crash it.
A process can be killed and replaced, a thread cannot; and the process gets no keys from the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from importlib.util import find_spec
from typing import Any

import orjson

from evenhand.core.errors import MissingExtraError, SearchError
from evenhand.search.web.fetch import Page
from evenhand.search.web.page import page_text

_KEPT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL")
"""Environment variables that a Python process may need to start."""


class PageReader:
    """Reads pages: `await reader.read(page)`; one at a time, each within `limit_s` seconds."""

    def __init__(self, limit_s: float = 10.0) -> None:
        if not find_spec("trafilatura"):
            raise MissingExtraError("Reading web pages", "search")
        self._limit_s = limit_s
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def read(self, page: Page) -> tuple[str, str]:
        """Return title and text; raise SearchError if the page has no text or takes too long."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._limit_s):
                    reply = await self._request(page)
            except BaseException as error:
                # Also when cancelled: a late reply would be mistaken for that of the next page.
                await self._end()
                if isinstance(error, TimeoutError):
                    raise SearchError("A page takes too long to read.") from error
                if isinstance(error, OSError | ValueError):
                    raise SearchError("A page cannot be read.") from error
                raise
        match reply:
            case {"title": str(title), "text": str(text)}:
                return title, text
            case _:
                raise SearchError("A page has no text.")

    async def aclose(self) -> None:
        async with self._turn:
            await self._end()

    async def _request(self, page: Page) -> Any:
        process = self._process = self._process or await _start()
        assert process.stdin is not None and process.stdout is not None
        request = {"html": page.content, "url": page.url, "plain": page.plain}
        process.stdin.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
        await process.stdin.drain()
        return orjson.loads(await process.stdout.readline())

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.communicate()  # waits for the end and closes the pipes


async def _start() -> Process:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
    )


def serve() -> None:
    """Run the separate process: read one page per line, write its title and text, until the input ends."""
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        try:
            title, text = page_text(request["html"], request["url"], plain=request["plain"])
            reply = {"title": title, "text": text}
        except SearchError:
            reply = None
        sys.stdout.buffer.write(orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
