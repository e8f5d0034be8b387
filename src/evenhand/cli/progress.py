"""What a command shows of its work: live progress, what became of each run, how to go on, and the exit code."""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import click

from evenhand.cli.output import current_output
from evenhand.core.errors import BudgetExhausted, EvenhandError
from evenhand.core.events import log
from evenhand.core.format import NO_PRICE, money
from evenhand.core.progress import Count, Listener, Observer, Progress, ignore
from evenhand.core.untrusted import one_line
from evenhand.models.budget import Limits
from evenhand.models.endpoints import call_among
from evenhand.runs.parts import Settings
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import most_ungraded, read_summary

STOPPED = 3
"""Exit code of a run that the budget stopped: nothing is wrong, but it is not complete."""
FAILED = 4
"""Exit code of a run with an arm, or a scorer, for which nothing was measured, or too little by --max-failed."""
LOST = 5
"""Exit code if a limit on what may be lost is exceeded."""
_LONGEST_REASON = 300


def print_end(folder: Path, progress: Progress, out: Path, budget: Limits) -> None:
    """Print what became of a run, why samples have no grade, and how to go on; `out` is what to resume."""
    current_output().folders.append(folder)
    states = ", ".join(f"{count:,} {status}" for status, count in progress.statuses.most_common())
    click.echo(f"{folder}: {progress.done:,} of {progress.total:,} done ({states or 'none'}).")
    summary = read_summary(folder)
    for status, reason, count in summary.reasons():
        click.echo(f"  {count:,} × {status}: {one_line(reason)[:_LONGEST_REASON]}")
    if summary.unread:
        click.echo(f"  The first reply that could not be read: {one_line(summary.unread)[:_LONGEST_REASON]}")
    if progress.stopped:
        limits = [part for text in budget.doubled().texts() for part in ("--budget", text)]
        click.echo(f"Stopped: {progress.stopped}. Continue with a larger budget: {resume_command(out, *limits)}")
    elif progress.statuses["failed"]:
        click.echo(f"Try the failed samples again: {resume_command(out, '--retry-failed')}")


def resume_command(out: Path, *options: str) -> str:
    """The command that goes on with a run, or with all runs of a paper."""
    with contextlib.suppress(EvenhandError):  # a store that cannot be read names no model
        if any(call_among(read_summary(file.parent).models) for file in out.rglob(FILE_NAME)):
            options = (*options, "--allow-call")
    return shlex.join(["evenhand", "resume", str(out), *options])


@contextlib.contextmanager
def stopped_by_budget(hint: str, ending: Callable[[], None] = lambda: None) -> Generator[None]:
    """End the command with STOPPED if the budget is used up: call `ending`, and say how to go on."""
    try:
        yield
    except BudgetExhausted as error:
        ending()
        click.echo(f"Stopped: {error}. {hint}")
        raise click.exceptions.Exit(STOPPED) from error


@contextlib.contextmanager
def resumable(out: Path) -> Generator[None]:
    """Name the command that goes on, if the user interrupts a run that has stored something."""
    try:
        yield
    except KeyboardInterrupt as error:
        if next(out.rglob(FILE_NAME), None) is None:
            raise
        raise KeyboardInterrupt(f"Interrupted. Continue with: {resume_command(out)}") from error


def exit_code(folders: Sequence[Path], settings: Settings, *, stopped: bool) -> int:
    """0, or STOPPED, or FAILED if an arm measured nothing or has too many samples without a grade."""
    found = [read_summary(folder) for folder in folders]
    code = STOPPED if stopped else 0
    if any(each.unmeasured for each in found):
        code = FAILED
    for arm in (arm for each in found if not each.nothing_measured for arm in each.unmeasured):
        click.echo(f"{arm.label}: nothing was measured: none of the {arm.done:,} samples has a grade.", err=True)
    for arm in (arm for each in found for arm in each.arms if settings.max_failed is not None):
        if arm.ungraded > most_ungraded(settings.max_failed or "", arm.done):
            click.echo(
                f"{arm.label}: {arm.ungraded:,} of {arm.done:,} samples have no grade, "
                f"more than --max-failed {settings.max_failed}.",
                err=True,
            )
            code = FAILED
    return code


class _Shown(Listener):
    def __init__(self, bar: ExitStack, out: Path, budget: Limits, on_run: Callable[[], None]) -> None:
        self._on_run = on_run
        self._bar = bar
        self._out = out
        self._budget = budget

    def run_began(self, folder: Path) -> Observer:
        del folder
        self._on_run()
        self._bar.close()
        return self._bar.enter_context(shown_progress())

    def run_ended(self, folder: Path, progress: Progress) -> None:
        self._bar.close()
        print_end(folder, progress, self._out, self._budget)

    def stage_began(self, name: str) -> Count:
        self._bar.close()
        click.echo(f"{name} …", err=True)
        return self._bar.enter_context(shown_count())

    def note(self, text: str) -> None:
        self._bar.close()
        click.echo(text)


@contextmanager
def shown_workflow(
    out: Path, budget: Limits | None = None, on_run: Callable[[], None] = lambda: None
) -> Generator[Listener]:
    """A listener that shows everything.

    Args:
        out: What to resume if the `budget` stops a run.
        on_run: Called before a run begins.
    """
    handler = _Warnings(logging.WARNING)
    log.addHandler(handler)
    try:
        with ExitStack() as bar:
            yield _Shown(bar, out, budget or Limits(), on_run)
    finally:
        log.removeHandler(handler)


class _Warnings(logging.Handler):
    """Shows what a training warns of while it runs."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) == "training":
            click.echo(f"! {record.getMessage()}", err=True)


_FIRST = 1.0
"""Seconds until the first line where there is no terminal."""
_EVERY = 15.0
"""Seconds between further lines."""


@contextlib.contextmanager
def shown_progress() -> Generator[Observer]:
    """An observer for the runner; what it shows goes to standard error, so that output can be piped.

    It shows the newest state all the time, also while nothing finishes.
    """
    if current_output().quiet:
        yield lambda _progress: None
        return
    with _bar() if sys.stderr.isatty() else _lines() as observe:
        yield observe


@contextlib.contextmanager
def _bar() -> Generator[Observer]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    started = time.monotonic()
    latest = Progress()

    class State(ProgressColumn):
        def render(self, task: Task) -> Text:
            del task
            return Text(describe(latest, started))

    def observe(progress: Progress) -> None:
        nonlocal latest
        latest = progress
        bar.update(task, completed=progress.done, total=None if progress.stage else progress.total)

    columns = (BarColumn(bar_width=16), State(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("", total=None)
        yield observe


@contextlib.contextmanager
def _lines() -> Generator[Observer]:
    """A line after a second, and then one every few seconds; a mistake that shows at once stays the only line."""
    started = time.monotonic()
    latest = Progress()
    ended = threading.Event()

    def tick() -> None:
        wait = _FIRST
        while not ended.wait(wait):
            wait = _EVERY
            click.echo(describe(latest, started), err=True)

    def observe(progress: Progress) -> None:
        nonlocal latest
        latest = progress

    clock = threading.Thread(target=tick, name="evenhand-progress", daemon=True)
    clock.start()
    try:
        yield observe
    finally:
        ended.set()
        clock.join()


def describe(progress: Progress, started: float) -> str:
    """Done, in flight, retries, cut, failed, tokens, money and time left."""
    if progress.stage:
        return progress.stage
    rate = (progress.done - progress.already) / max(1e-9, time.monotonic() - started)
    left = (progress.total - progress.done) / rate if rate > 0 else None
    statuses, activity, cost = progress.statuses, progress.activity, progress.spent.cost
    parts = [
        f"{progress.done:,}/{progress.total:,}",
        f"{max(0, activity.in_flight):,} in flight",
        *([f"{activity.held:,} waiting"] if activity.held else []),
        f"{activity.retries:,} retries",
        f"{statuses['cut']:,} cut",
        f"{statuses['failed']:,} failed",
    ]
    if other := statuses["refused"] + statuses["unscored"]:
        parts.append(f"{other:,} without an answer")
    parts.append(f"{progress.spent.tokens:,} tokens")
    parts.append(money(cost, NO_PRICE))
    if progress.done < progress.total:
        parts.append("time left unknown" if left is None else f"{int(left // 60)}:{int(left % 60):02d} left")
    return ", ".join(parts)


@contextlib.contextmanager
def shown_count(unit: Literal["", "bytes"] = "") -> Generator[Count]:
    """A reporter of how many are done, and of how many; the bar appears with the first call."""
    if current_output().quiet or (unit and not sys.stderr.isatty()):
        yield ignore
        return
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell(done: int, total: int | None) -> None:
            nonlocal last
            if time.monotonic() - last >= _EVERY:
                last = time.monotonic()
                click.echo(f"{done:,}" if total is None else f"{done:,}/{total:,}", err=True)

        yield tell
        return
    with contextlib.ExitStack() as stack:
        count: Count | None = None

        def show(done: int, total: int | None) -> None:
            nonlocal count
            count = count or stack.enter_context(_count_bar(unit))
            count(done, total)

        yield show


@contextlib.contextmanager
def _count_bar(unit: Literal["", "bytes"]) -> Generator[Count]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    if unit:
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    else:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=not unit) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
