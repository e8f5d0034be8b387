"""What a run tells while it goes on: its progress to observers, and its samples and calls to the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from evenhand.core.events import Activity, event, log
from evenhand.core.notebook import clean, escaped
from evenhand.core.types import Status, Turn, Usage


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

    def __repr__(self) -> str:
        parts = [f"{self.done:,} of {self.total:,} samples", *(f"{n:,} {name}" for name, n in self.statuses.items())]
        money = "price unknown" if self.spent.cost is None else f"${self.spent.cost:,.2f}"
        parts += [f"{self.spent.calls:,} calls", f"{self.spent.tokens:,} tokens", money]
        return clean(f"Progress({', '.join(parts)}{f'; stopped: {self.stopped}' if self.stopped else ''})")

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{max(1, self.total)}"></progress>'
        return f"<p>{bar} {escaped(repr(self).removeprefix('Progress(')[:-1])}</p>"


Observer = Callable[[Progress], None]


_UNGRADED: Mapping[Status, str] = {"failed": "failure", "unscored": "unscored", "cut": "cut"}
"""The names of the events of samples that are neither graded nor refused."""


def log_sample(status: Status, reason: str | None, seconds: float) -> None:
    """Log how a sample ended."""
    name = _UNGRADED.get(status, "sample")
    level = logging.INFO if status in _UNGRADED else logging.DEBUG
    event(name, f"{status}: {reason}" if reason else status, level=level, status=status, seconds=round(seconds, 3))


def log_call(turn: Turn) -> None:
    """Log a call with its texts, at the level DEBUG."""
    if not log.isEnabledFor(logging.DEBUG):  # the texts of every call cost as much as storing it
        return
    generation = turn.generation
    fields: dict[str, Any] = {"agent": turn.agent, "role": turn.role, "prompt": turn.prompt_id, "error": turn.error}
    if generation is not None:
        fields |= {
            "model": generation.model,
            "tokens": generation.usage.tokens,
            "seconds": round(generation.latency, 3),
        }
        fields["cached"] = generation.cached
    texts = {"messages": [asdict(each) for each in turn.messages], "reply": generation.text if generation else None}
    event("call", turn.error or "answered", level=logging.DEBUG, texts=texts, **fields)
