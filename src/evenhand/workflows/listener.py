"""Progress callbacks of workflows: the command line shows them, Python callers may ignore them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evenhand.runs.progress import Observer, Progress

Count = Callable[[int, int], None]
"""Called with how many are done, and of how many."""


class Listener:
    """Ignores all events; override the methods that you need."""

    def run_began(self, folder: Path) -> Observer:
        """A run begins; the observer that is returned gets its progress."""
        del folder
        return lambda _progress: None

    def run_ended(self, folder: Path, progress: Progress) -> None:
        """The run in `folder` is complete, or its budget is used up."""

    def stage_began(self, name: str) -> Count:
        """A stage of some other work begins, e.g. of training; what is returned gets its steps."""
        del name
        return lambda _done, _total: None

    def note(self, text: str) -> None:
        """A sentence about the result, or a warning."""
