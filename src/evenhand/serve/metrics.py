"""What Prometheus reads at /metrics; needs the package prometheus-client (extra `serve`).

Labels come from the config and from fixed lists: whatever a client sends never becomes a label.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from aiohttp import web

from evenhand.serve.errors import RequestError
from evenhand.serve.events import Event
from evenhand.serve.limits import Limits

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SCORES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
OTHER = "other"

_ENDPOINTS = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/moderations", "/v1alpha1/comments:analyze"}
)
_ACTIONS = frozenset({"", "passed", "revised", "flagged", "blocked", "unrevised", "bypassed"})
_STAGES = frozenset({"answer", "checks", "revision", "total"})


class Metrics:
    """A sink that counts, with a registry of its own so that several servers fit into one process."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._routes: frozenset[str] = frozenset()

        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(f"evenhand_{name}", says, labels, registry=registry)

        def histogram(name: str, says: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"evenhand_{name}", says, labels, buckets=buckets, registry=registry)

        self._requests = counter(
            "requests", "Requests by what became of them.", "route", "endpoint", "status", "action"
        )
        self._late = counter("late", "Answers that used up their latency budget.", "route")
        self._scores = histogram(
            "check_score",
            "Evaluators' scores of first answers and of what clients got.",
            SCORES,
            "route",
            "check",
            "when",
        )
        self._failed = counter("checks_failed", "Texts that an evaluator did not let pass.", "route", "check", "when")
        self._unscored = counter("checks_unscored", "Texts that an evaluator could not score.", "route", "check")
        self._stages = histogram("stage_seconds", "Time by stage of the loop.", SECONDS, "route", "stage")
        self._first = histogram(
            "first_segment_seconds", "Time until the first checked text of a stream.", SECONDS, "route"
        )
        self._upstream = counter("upstream_errors", "Requests that the model's endpoint failed.", "route", "kind")
        self._calls = counter("model_calls", "Calls of models.", "route")
        self._retries = counter("model_retries", "Calls of models that were repeated.", "route")
        self._tokens = counter("tokens", "Tokens of the whole loop.", "route", "kind")
        self._cost = counter("cost", "Money spent, in the currency of the prices.", "route")
        self._unpriced = counter("unpriced", "Requests whose cost is not known.", "route")

    def know(self, routes: Collection[str]) -> None:
        """The routes that may become labels, at start and after a reload."""
        self._routes = frozenset(routes)

    def watch(self, name: str, says: str, value: Callable[[], float]) -> None:
        """A gauge that is asked when Prometheus asks."""
        from prometheus_client import Gauge

        Gauge(f"evenhand_{name}", says, registry=self.registry).set_function(value)

    def watch_limits(self, limits: Limits) -> None:
        gate = limits.gate
        self.watch("in_flight", "Requests that are worked on.", lambda: gate.inside)
        self.watch("waiting", "Requests that wait for their turn.", lambda: gate.waiting)
        self.watch("turned_away", "Requests that found the line full.", lambda: gate.turned_away)

    def __call__(self, event: Event) -> None:
        route = event.route if event.route in self._routes else OTHER
        self._requests.labels(
            route, _known(event.endpoint, _ENDPOINTS), str(event.status), _known(event.action, _ACTIONS)
        ).inc()
        if event.late:
            self._late.labels(route).inc()
        for when, checks in (("before", event.before), ("after", event.after)):
            for check in checks:
                if check.score is None:
                    self._unscored.labels(route, check.name).inc()
                else:
                    self._scores.labels(route, check.name, when).observe(check.score)
                if not check.passed:
                    self._failed.labels(route, check.name, when).inc()
        for stage, seconds in event.stages.items():
            self._stages.labels(route, _known(stage, _STAGES)).observe(seconds)
        if event.first_segment is not None:
            self._first.labels(route).observe(event.first_segment)
        if event.upstream_error:
            self._upstream.labels(route, _kind(event.upstream_error)).inc()
        self._count_usage(route, event)

    def _count_usage(self, route: str, event: Event) -> None:
        usage = event.usage
        self._calls.labels(route).inc(usage.calls)
        self._retries.labels(route).inc(usage.retries)
        self._tokens.labels(route, "prompt").inc(usage.prompt_tokens)
        self._tokens.labels(route, "completion").inc(usage.completion_tokens)
        if usage.cost is None:
            self._unpriced.labels(route).inc()
        else:
            self._cost.labels(route).inc(usage.cost)


def load_metrics() -> Metrics | None:
    """The metrics, or None where their package is not installed."""
    try:
        return Metrics()
    except ImportError:
        return None


def routes(metrics: Metrics | None) -> list[web.RouteDef]:
    """The handler of /metrics."""

    async def show(_: web.Request) -> web.Response:
        if metrics is None:
            raise RequestError(501, "Metrics need a package that is not installed: pip install 'evenhand[serve]'")
        return web.Response(
            body=_text(metrics.registry), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    return [web.get("/metrics", show)]


def _text(registry: CollectorRegistry) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(registry)


def _known(value: str, names: frozenset[str]) -> str:
    return value if value in names else OTHER


def _kind(error: str) -> str:
    """`timeout`, `unreachable` or an HTTP status."""
    return (
        error
        if error in ("timeout", "unreachable") or (error.isascii() and error.isdigit() and len(error) == 3)
        else OTHER
    )
