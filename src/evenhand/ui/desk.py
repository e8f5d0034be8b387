"""What all handlers of the workbench share: the index, the workers, the processes they start, and how a page is sent.

The estimates of all runs are computed in the background, newest first, for leaderboards and headlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.errors import EvenhandError, UsageError
from evenhand.runs.store import FILE_NAME
from evenhand.show.markup import Html, Node, join, tag
from evenhand.ui import work
from evenhand.ui.index import Chosen, Index, RunRow
from evenhand.ui.pages import computing, problem
from evenhand.web import site
from evenhand.web.errors import RequestError
from evenhand.web.site import END, beginning, page

MOST = 4
"""Runs at the same time."""
DRY_SECONDS = 120.0
STOP_SECONDS = 10.0
_KEPT_OUTPUT = 4000
"""Characters that are kept of what a process prints."""
_FINE = (0, 3)
"""Exit codes of a run that is complete, or that its budget stopped."""


@dataclass(slots=True)
class Job:
    """A process and the end of what it printed."""

    process: asyncio.subprocess.Process
    output: str = ""
    reading: asyncio.Task[None] | None = None
    cancelled: bool = False
    left_nothing: bool = False
    printed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is more output, and at the end."""

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None


class Jobs:
    """The processes of this server, by run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: dict[str, Job] = {}

    async def forecast(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the dry run: what every arm would take, and the first prompts as they would be asked."""
        _, out = await self.finished("run", *arguments, "--dry-run", "--json")
        return orjson.loads(out)

    async def finished(self, *command: str, fine: Sequence[int] = (0,)) -> tuple[int, str]:
        """Return the exit code and the output of a command that calls no model."""
        process = await _process(*command, merged=False)
        try:
            async with asyncio.timeout(DRY_SECONDS):
                out, problems = await process.communicate()
        except TimeoutError as error:
            raise EvenhandError(f"evenhand {command[0]} took longer than {DRY_SECONDS:g} s.") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode not in fine:
            said = _sentence(problems.decode("utf-8", "replace"))
            raise EvenhandError(said or f"evenhand {command[0]} failed.")
        return process.returncode or 0, out.decode("utf-8", "replace")

    async def serve(self, name: str, last: str, *command: str) -> str:
        """Start a server that runs as long as this one; return what it prints until the line with `last`."""
        if not self.is_ours(name):
            await self._begin(name, *command)
        job = self._jobs[name]
        while last not in job.output and job.is_running:
            job.printed.clear()
            await job.printed.wait()
        if not job.is_running:
            raise EvenhandError(_sentence(job.output))
        return job.output

    async def start(self, name: str, arguments: Sequence[str]) -> str:
        """Start a run in a new folder; return its id."""
        if (self._folder / name).exists():
            raise UsageError("A run of this name was started a moment ago; try again.")
        await self._begin(name, "run", *arguments, "--out", str(self._folder / name))
        return name

    async def resume(self, run_id: str, budget: Sequence[str]) -> None:
        limits = [part for text in budget for part in ("--budget", text)]
        await self._begin(run_id, "resume", str(self._folder / run_id), *limits)

    async def _begin(self, run_id: str, *command: str) -> None:
        if self.is_ours(run_id):
            raise UsageError("This run is going on already.")
        if sum(job.is_running for job in self._jobs.values()) >= MOST:
            raise UsageError(f"{MOST} runs are going on already; wait for one of them, or cancel it.")
        job = Job(await _process(*command))
        job.reading = asyncio.create_task(_read(job))
        self._jobs[run_id] = job

    async def cancel(self, run_id: str) -> None:
        """Stop a run of ours; what it has finished is kept."""
        job = self._jobs.get(run_id)
        if job is None or not job.is_running:
            raise UsageError("This run was not started here, or it has ended.")
        job.cancelled = True
        await _stop(job)
        job.left_nothing = not (self._folder / run_id / FILE_NAME).exists()

    def is_ours(self, run_id: str) -> bool:
        """Whether a process of ours is running it."""
        job = self._jobs.get(run_id)
        return job is not None and job.is_running

    def left_nothing(self, run_id: str) -> bool:
        """Whether a run of ours was cancelled before its first answer, so that it has no folder."""
        job = self._jobs.get(run_id)
        return job is not None and job.left_nothing

    def said(self, run_id: str) -> str:
        """Return why a run of ours ended early; "" if it did not."""
        job = self._jobs.get(run_id)
        if job is None or job.is_running or job.process.returncode in _FINE:
            return ""
        return "Cancelled. Everything finished so far is kept." if job.cancelled else _sentence(job.output)

    async def close(self) -> None:
        """Stop all processes; the runs can be resumed."""
        await asyncio.gather(*(_stop(job) for job in self._jobs.values() if job.is_running))
        for job in self._jobs.values():
            if job.reading is not None:
                job.reading.cancel()


async def _process(*command: str, merged: bool = True) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "evenhand",
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
        start_new_session=True,  # Ctrl-C in the terminal ends the server, which ends its runs in order
    )


async def _read(job: Job) -> None:
    assert job.process.stdout is not None
    with contextlib.suppress(ValueError):
        while part := await job.process.stdout.read(4096):
            job.output = (job.output + part.decode("utf-8", "replace"))[-_KEPT_OUTPUT:]
            job.printed.set()
    await job.process.wait()
    job.printed.set()


async def _stop(job: Job) -> None:
    """Interrupt a process as Ctrl-C does; if that takes too long, kill it."""
    with contextlib.suppress(ProcessLookupError):
        job.process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await job.process.wait()
        except TimeoutError:
            job.process.kill()
            await job.process.wait()


def _sentence(output: str) -> str:
    """Return the last message of the command, without its name in front."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    ours = [line.removeprefix("evenhand: ") for line in lines if line.startswith("evenhand: ")]
    return (ours or lines or [""])[-1]


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
        row = self.index.rows.get(str(form.get("id", "")))
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
