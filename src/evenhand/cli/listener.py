"""Shows what a workflow tells: bars on standard error, a line for each run that ended, and its notes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from evenhand.cli.ending import print_end
from evenhand.cli.progress import shown_count, shown_progress
from evenhand.core.events import log
from evenhand.core.progress import Count, Listener, Observer, Progress
from evenhand.models.budget import Limits


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
