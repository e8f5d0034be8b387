"""Live progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator

import click

from evenhand.runs.runner import Observer, Progress

_EVERY = 15.0
"""Seconds between lines where there is no terminal."""


@contextlib.contextmanager
def shown_progress() -> Generator[Observer]:
    """An observer for the runner; what it shows goes to standard error, so that output can be piped."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TextColumn("{task.fields[state]}"),
    )
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("", total=None, state="starting", visible=False)
        started = time.monotonic()

        def observe(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                state=describe(progress, started),
                visible=True,
            )

        yield observe


def _lines() -> Observer:
    started = time.monotonic()
    last = started

    def observe(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _EVERY:
            last = now
            click.echo(f"{progress.done:,}/{progress.total:,} {describe(progress, started)}", err=True)

    return observe


def describe(progress: Progress, started: float) -> str:
    """Rate, failures, cost and time left, in a few words."""
    seconds = max(1e-9, time.monotonic() - started)
    rate = (progress.done - progress.already) / seconds
    left = (progress.total - progress.done) / rate if rate > 0 else None
    parts = [f"{rate:.1f}/s"]
    if failed := progress.statuses["failed"]:
        parts.append(f"{failed:,} failed")
    if cut := progress.statuses["cut"]:
        parts.append(f"{cut:,} cut")
    if other := progress.statuses["refused"] + progress.statuses["unscored"]:
        parts.append(f"{other:,} without an answer")
    parts.append(f"{progress.spent.tokens:,} tokens")
    if progress.spent.cost:
        parts.append(f"${progress.spent.cost:.2f}")
    if left is not None and progress.done < progress.total:
        parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
    return ", ".join(parts)


@contextlib.contextmanager
def shown_count(total: int) -> Generator[Callable[[int], None]]:
    """A reporter of how many of `total` are done."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell(done: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _EVERY:
                last = time.monotonic()
                click.echo(f"{done:,}/{total:,}", err=True)

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


@contextlib.contextmanager
def shown_share() -> Generator[Callable[[int, int], None]]:
    """A reporter of (done so far, all), for work whose size shows when it begins."""
    with contextlib.ExitStack() as stack:
        count: Callable[[int], None] | None = None

        def tell(done: int, total: int) -> None:
            nonlocal count
            count = count or stack.enter_context(shown_count(total))
            count(done)

        yield tell


@contextlib.contextmanager
def shown_download() -> Generator[Callable[[int, int | None], None]]:
    """A reporter of (bytes so far, bytes in all if known)."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    with Bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
