"""Live progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Generator
from typing import Literal

import click

from evenhand.cli.output import current_output
from evenhand.core.format import NO_PRICE, money
from evenhand.core.progress import Count, Observer, Progress, ignore

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
        f"{activity.in_flight:,} in flight",
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
