"""Statistics of the live page: totals, counts by route and mean scores over time, in bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from evenhand.core.format import finite
from evenhand.guards.types import Check
from evenhand.server.telemetry.events import Event

BARS = 60
"""Time steps per window."""
WINDOWS = {"5 minutes": 5, "hour": 60, "day": 24 * 60}
"""Seconds per time step of each window."""
_LATEST = 1_000
"""Number of latest requests in the latency percentiles."""
_UNGUARDED = frozenset({"", "scored", "embedded"})


@dataclass(slots=True)
class RouteCount:
    """Counts of one route."""

    requests: int = 0
    answered: int = 0
    """Answers that went through the guard."""
    revised: int = 0
    blocked: int = 0
    errors: int = 0


@dataclass(slots=True)
class Mean:
    """A running mean."""

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
    """Mean scores of one time step by evaluator, of first answers (`before`) and returned answers (`after`)."""

    index: int
    before: dict[str, Mean] = field(default_factory=dict[str, Mean])
    after: dict[str, Mean] = field(default_factory=dict[str, Mean])


class Window:
    """Mean scores over the last time steps."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._steps: deque[Step] = deque(maxlen=BARS)

    def add(self, time: float, before: Iterable[Check], after: Iterable[Check]) -> None:
        index = int(time // self.seconds)
        # A request that ended out of order counts in the latest step.
        if not self._steps or index > self._steps[-1].index:
            self._steps.append(Step(index))
        step = self._steps[-1]
        for means, checks in ((step.before, before), (step.after, after)):
            for check in checks:
                score = finite(check.score)
                if score is not None:
                    means.setdefault(check.name, Mean()).add(score)

    def as_fields(self) -> list[dict[str, Any]]:
        return [asdict(step) for step in self._steps]

    def add_fields(self, steps: Iterable[Mapping[str, Any]]) -> None:
        """Add the time steps of another process."""
        known = {step.index: step for step in self._steps}
        for given in steps:
            step = known.setdefault(given["index"], Step(given["index"]))
            for means, others in ((step.before, given["before"]), (step.after, given["after"])):
                for name, other in others.items():
                    mean = means.setdefault(name, Mean())
                    mean.total += other["total"]
                    mean.n += other["n"]
        self._steps = deque(sorted(known.values(), key=lambda step: step.index), maxlen=BARS)

    def lines(self, now: float) -> Mapping[str, Any]:
        """Return the means by evaluator, oldest step first; None for steps without scores. The last step is now."""
        last = int(now // self.seconds)
        # An event with a time in the future counts as now.
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


_COUNTS = ("requests", "late", "upstream_errors", "errors", "tokens", "cost", "unpriced")


class Board:
    """A sink that keeps counts and means, never texts."""

    def __init__(self, latest: int | None = _LATEST) -> None:
        self.requests = 0
        self.late = 0
        self.upstream_errors = 0
        self.errors = 0
        self.tokens = 0
        self.cost = 0.0
        self.unpriced = 0
        """Requests of unknown cost."""
        self.actions: Counter[str] = Counter()
        self.routes: dict[str, RouteCount] = {}
        self.limits: dict[str, float] = {}
        """The latest limit of each evaluator."""
        self.windows = {name: Window(seconds) for name, seconds in WINDOWS.items()}
        self._seconds: deque[float] = deque(maxlen=latest)

    @classmethod
    def sum_of(cls, boards: Iterable[Mapping[str, Any]]) -> Board:
        """Return the counts of several processes together, each as `as_fields` gives them."""
        whole = cls(latest=None)
        for board in boards:
            whole._add(board)
        return whole

    def as_fields(self) -> dict[str, Any]:
        """Return all counts as JSON can hold them."""
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "actions": self.actions,
            "routes": {name: asdict(route) for name, route in self.routes.items()},
            "limits": self.limits,
            "windows": {name: window.as_fields() for name, window in self.windows.items()},
            "seconds": list(self._seconds),
        }

    def _add(self, board: Mapping[str, Any]) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + board[name])
        self.actions.update(board["actions"])
        self.limits |= board["limits"]
        self._seconds.extend(board["seconds"])
        for name, counts in board["routes"].items():
            route = self.routes.setdefault(name, RouteCount())
            for field_name, count in counts.items():
                setattr(route, field_name, getattr(route, field_name) + count)
        for name, steps in board["windows"].items():
            self.windows[name].add_fields(steps)

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
        route.blocked += event.action in ("blocked", "input-blocked")
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

    def percentile(self, fraction: float) -> float | None:
        """Return a percentile of the latest latencies; None before the first answer."""
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else None


def released(event: Event) -> tuple[Check, ...]:
    """Return the checks of the returned text; for an unchanged answer, those of the first answer."""
    if event.after or event.action in ("revised", "tried", "blocked", *_UNGUARDED):
        return event.after
    return event.before
