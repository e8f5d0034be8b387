"""The one progress protocol, for runs, downloads, training, scoring and making data; a bar, a page or nobody listens.

Work of known steps calls a `Count`. A run shows its `Progress` to an `Observer`. Work of several stages and runs has a
`Listener`, which returns one of these for each.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evenhand.core.events import Activity
from evenhand.core.format import NO_PRICE, money
from evenhand.core.types import Status, Usage
from evenhand.core.untrusted import clean, escaped

Count = Callable[[int, int | None], None]
"""Called with how many (samples, steps, bytes) are done, and of how many; None: not known yet."""


Announce = Callable[[str], Count]
"""Called with the name of a stage that begins, as `Listener.stage_began`; what it returns gets the stage's steps."""


def counted(count: Count, total: int | None) -> Callable[..., None]:
    """Return a function that reports one step more with each call, whatever it is called with."""
    numbers = itertools.count(1)
    return lambda *_: count(next(numbers), total)


def ignore(done: int, total: int | None) -> None:
    """A `Count` that shows nothing."""
    del done, total


@dataclass(slots=True, repr=False)
class Progress:
    """The progress of a run, for observers."""

    total: int = 0
    done: int = 0
    already: int = 0
    """Samples that were done before this session."""
    statuses: Counter[Status] = field(default_factory=Counter[Status])
    spent: Usage = Usage()
    stopped: str | None = None
    """Why the run ended early."""
    stage: str = "starting"
    """What happens before the first sample: `loading MODEL`, `reading BENCHMARK`; empty from then on."""
    activity: Activity = field(default_factory=Activity)
    """Calls in flight and retries, at any moment."""

    def go_on_from(self, counts: Iterable[Mapping[Status, int]], total: int) -> None:
        """Begin with what earlier sessions have done of so many samples."""
        for each in counts:
            self.statuses.update(each)
        self.total, self.already = total, self.statuses.total()
        self.done = self.already

    def __repr__(self) -> str:
        parts = [f"{self.done:,} of {self.total:,} samples", *(f"{n:,} {name}" for name, n in self.statuses.items())]
        parts += [f"{self.spent.calls:,} calls", f"{self.spent.tokens:,} tokens", money(self.spent.cost, NO_PRICE)]
        return clean(f"Progress({', '.join(parts)}{f'; stopped: {self.stopped}' if self.stopped else ''})")

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{max(1, self.total)}"></progress>'
        return f"<p>{bar} {escaped(repr(self).removeprefix('Progress(')[:-1])}</p>"


Observer = Callable[[Progress], None]
"""Called with the state of a run whenever it changes."""


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
        return ignore

    def note(self, text: str) -> None:
        """A sentence about the result, or a warning."""
