"""Shows what a workflow tells: bars on standard error, a line for each run that ended, and its notes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from evenhand.cli.progress import shown_progress, shown_share
from evenhand.runs.runner import Observer, Progress
from evenhand.workflows.listener import Count, Listener


class _Shown(Listener):
    def __init__(self, bar: ExitStack, out: Path) -> None:
        self._bar = bar
        self._out = out

    def run_began(self, folder: Path) -> Observer:
        del folder
        self._bar.close()
        return self._bar.enter_context(shown_progress())

    def run_ended(self, folder: Path, progress: Progress) -> None:
        self._bar.close()
        print_end(folder, progress, self._out)

    def stage_began(self, name: str) -> Count:
        self._bar.close()
        click.echo(f"{name} …", err=True)
        return self._bar.enter_context(shown_share())

    def note(self, text: str) -> None:
        self._bar.close()
        click.echo(text)


@contextmanager
def shown_workflow(out: Path) -> Generator[Listener]:
    """A listener that shows everything; `out` is what to resume with."""
    with ExitStack() as bar:
        yield _Shown(bar, out)


def print_end(folder: Path, progress: Progress, out: Path) -> None:
    """What became of a run, and how to go on."""
    states = ", ".join(f"{count:,} {status}" for status, count in progress.statuses.most_common())
    click.echo(f"{folder}: {progress.done:,} of {progress.total:,} done ({states or 'none'}).")
    if progress.stopped:
        click.echo(f"Stopped: {progress.stopped}. Go on with a larger --budget and --resume --out {out}")
    elif progress.statuses["failed"]:
        click.echo(f"Failed samples can be tried again: add --resume --retry-failed --out {out}")
