"""What was started from a page: each is a process of `evenhand`, mostly of `evenhand run` or `evenhand resume`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import EvenhandError, UsageError

MOST = 4
"""Runs at the same time."""
DRY_SECONDS = 120.0
STOP_SECONDS = 10.0
_KEPT = 4000
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

    def is_ours(self, run_id: str) -> bool:
        """Whether a process of ours is running it."""
        job = self._jobs.get(run_id)
        return job is not None and job.is_running

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
            job.output = (job.output + part.decode("utf-8", "replace"))[-_KEPT:]
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
