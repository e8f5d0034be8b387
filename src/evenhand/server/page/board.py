"""What the live page counts: totals, shares by route and mean scores over time, all in bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenhand.guards.types import Check
from evenhand.reports.format import finite
from evenhand.server.telemetry.events import Event

BARS = 60
"""Steps of time in one window."""
WINDOWS = {"5 minutes": 5, "hour": 60, "day": 24 * 60}
"""The windows by name, with the seconds of one step."""
_LATEST = 1_000
"""Requests that the latency percentiles are taken over."""
_UNGUARDED = frozenset({"", "scored"})


@dataclass(slots=True)
class RouteCount:
    """What happened on one route."""

    requests: int = 0
    answered: int = 0
    """Answers that went through the guard."""
    revised: int = 0
    blocked: int = 0
    errors: int = 0


@dataclass(slots=True)
class Mean:
    """A mean that grows."""

    total: float = 0.0
    n: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.n += 1

    @property
    def value(self) -> float | None:
        return round(self.total / self.n, 4) if self.n else None


_NOTHING = Mean()


@dataclass(slots=True)
class Step:
    """The scores of one step of time: by evaluator, of the first answers and of what clients got."""

    index: int
    before: dict[str, Mean] = field(default_factory=dict[str, Mean])
    after: dict[str, Mean] = field(default_factory=dict[str, Mean])


class Window:
    """Mean scores over the last steps of time."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._steps: deque[Step] = deque(maxlen=BARS)

    def add(self, time: float, before: Iterable[Check], after: Iterable[Check]) -> None:
        index = int(time // self.seconds)
        # A request that ended out of turn counts where the latest one does.
        if not self._steps or index > self._steps[-1].index:
            self._steps.append(Step(index))
        step = self._steps[-1]
        for means, checks in ((step.before, before), (step.after, after)):
            for check in checks:
                score = finite(check.score)
                if score is not None:
                    means.setdefault(check.name, Mean()).add(score)

    def lines(self, now: float) -> Mapping[str, Any]:
        """The means by evaluator, oldest step first, None where nothing was scored; the last step is now's."""
        last = int(now // self.seconds)
        # An event from the future of this clock counts as now's.
        known = {min(step.index, last): step for step in self._steps}
        steps = [known.get(index, Step(index)) for index in range(last - BARS + 1, last + 1)]
        names = sorted({name for step in steps for name in (*step.before, *step.after)})
        return {
            name: {
                "before": [step.before.get(name, _NOTHING).value for step in steps],
                "after": [step.after.get(name, _NOTHING).value for step in steps],
                "n": [step.before.get(name, _NOTHING).n for step in steps],
            }
            for name in names
        }


class Board:
    """A sink of events that keeps counts and means, never texts."""

    def __init__(self) -> None:
        self.requests = 0
        self.late = 0
        self.upstream_errors = 0
        self.errors = 0
        self.tokens = 0
        self.cost = 0.0
        self.unpriced = 0
        """Requests whose price is not known."""
        self.actions: Counter[str] = Counter()
        self.routes: dict[str, RouteCount] = {}
        self.limits: dict[str, float] = {}
        """The latest limit of each evaluator."""
        self.windows = {name: Window(seconds) for name, seconds in WINDOWS.items()}
        self._seconds: deque[float] = deque(maxlen=_LATEST)

    def __call__(self, event: Event) -> None:
        self.requests += 1
        self.actions[event.action] += 1
        self.late += event.late
        self.upstream_errors += bool(event.upstream_error)
        self.errors += event.status >= 400
        self.tokens += event.usage.tokens
        if event.usage.cost is None:
            self.unpriced += 1
        else:
            self.cost += event.usage.cost
        self._count_route(event)
        self._measure(event)

    def _count_route(self, event: Event) -> None:
        route = self.routes.setdefault(event.route, RouteCount())
        route.requests += 1
        route.answered += event.action not in _UNGUARDED
        route.revised += event.action == "revised"
        route.blocked += event.action == "blocked"
        route.errors += event.status >= 400

    def _measure(self, event: Event) -> None:
        if event.action in _UNGUARDED:
            return
        seconds = finite(event.stages.get("total")) or 0.0
        self._seconds.append(seconds)
        for check in event.before:
            if (limit := finite(check.limit)) is not None:
                self.limits[check.name] = limit
        for window in self.windows.values():
            window.add(event.time + seconds, event.before, released(event))

    @property
    def answered(self) -> int:
        """Answers that went through the guard."""
        return sum(n for action, n in self.actions.items() if action not in _UNGUARDED)

    def percentile(self, part: float) -> float | None:
        """The latency that this part of the latest answers stayed within; None before the first."""
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def released(event: Event) -> tuple[Check, ...]:
    """The checks of the text that the client got; an answer that was let through has those of the first."""
    if event.after or event.action in ("revised", "blocked", *_UNGUARDED):
        return event.after
    return event.before
