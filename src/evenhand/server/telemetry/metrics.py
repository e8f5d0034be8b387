"""Prometheus metrics at /metrics; needs the package prometheus-client (extra `serve`).

Labels come from the config and from fixed lists; text from clients never becomes a label.

If several processes serve one port, Prometheus reaches any one of them. Inside `shared_counts` they share a folder of
counts, and each reports the sum of all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from aiohttp import web

from evenhand.core.files import scratch
from evenhand.server.errors import SERVED
from evenhand.server.limits import ServerLimits
from evenhand.server.state.state import State
from evenhand.server.telemetry.audit import AuditLog
from evenhand.server.telemetry.events import Event, Events, Recorded
from evenhand.web.errors import RequestError

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

AnyMetric = TypeVar("AnyMetric", "Counter", "Histogram")
SCORES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
OTHER = "other"
SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with prometheus-client's shared folder; it is read at import."""

_ENDPOINTS = frozenset(SERVED)
_ACTIONS = frozenset({"", *get_args(Recorded)})
_STAGES = frozenset({"input", "answer", "checks", "revision", "total"})


class Metrics:
    """A sink that counts events in its own registry, so that one process can hold several servers."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._routes: frozenset[str] = frozenset()
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        self._breakers: Gauge | None = None
        self._upstreams: Callable[[], Iterable[tuple[str, str, bool]]] = tuple
        self._known_upstreams: set[tuple[str, str]] = set()
        self._shared = os.environ.get(SHARED)
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}

        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"evenhand_{name}", help_text, labels, registry=registry)

        def histogram(name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"evenhand_{name}", help_text, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests by status and action.", "route", "endpoint", "status", "action")
        self._inputs = counter("inputs", "Checked requests by the result of their check.", "route", "action")
        self._late = counter("late", "Answers that exceeded their latency budget.", "route")
        self._scores = histogram(
            "check_score",
            "Evaluators' scores of requests, first answers and returned answers.",
            SCORES,
            "route",
            "check",
            "when",
        )
        self._failed = counter("checks_failed", "Texts that failed an evaluator's check.", "route", "check", "when")
        self._unscored = counter("checks_unscored", "Texts that an evaluator could not score.", "route", "check")
        self._stages = histogram("stage_seconds", "Time by stage of the loop.", SECONDS, "route", "stage")
        self._first = histogram(
            "first_segment_seconds", "Time until the first checked text of a stream.", SECONDS, "route"
        )
        self._upstream = counter("upstream_errors", "Requests on which the model's endpoint failed.", "route", "kind")
        self._tried = counter("upstream_requests", "Calls of an upstream.", "route", "upstream")
        self._tried_in_vain = counter("upstream_failures", "Failed calls of an upstream.", "route", "upstream")
        self._calls = counter("model_calls", "Model calls.", "route")
        self._retries = counter("model_retries", "Retries of model calls.", "route")
        self._tokens = counter("tokens", "Tokens of the whole loop.", "route", "kind")
        self._cost = counter("cost", "Money spent, in the currency of the prices.", "route")
        self._unpriced = counter("unpriced", "Requests of unknown cost.", "route")
        self._key_tokens = counter("key_tokens", "Tokens of the whole loop, by the client's key.", "key")
        self._key_cost = counter("key_cost", "Money spent by the client's key.", "key")

    def set_routes(self, routes: Collection[str]) -> None:
        """Set the routes that may become labels, at start and after a reload."""
        self._routes = frozenset(routes)

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read on every scrape; for other processes, its value at their last event counts."""
        from prometheus_client import Gauge

        gauge = Gauge(f"evenhand_{name}", help_text, registry=self.registry, multiprocess_mode="livesum")
        self._watched.append((gauge, value))

    def watch_upstreams(self, upstreams: Callable[[], Iterable[tuple[str, str, bool]]]) -> None:
        """Add a gauge of circuit breakers: (route, upstream, whether it is open)."""
        from prometheus_client import Gauge

        self._breakers = Gauge(
            "evenhand_upstream_open",
            "Whether the circuit breaker of an upstream is open; of several processes, in how many it is.",
            ("route", "upstream"),
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._upstreams = upstreams

    def watch_losses(self, events: Events, audit: AuditLog | None) -> None:
        self.watch("events_lost", "Failures of metrics, log or page to process an event.", lambda: events.failures)
        if audit is not None:
            self.watch("audit_rows_lost", "Requests missing from the audit file.", lambda: audit.dropped)

    def watch_limits(self, limits: ServerLimits) -> None:
        gate = limits.gate
        self.watch("in_flight", "Requests in flight.", lambda: gate.in_flight)
        self.watch("waiting", "Requests in the queue.", lambda: gate.waiting)
        self.watch("turned_away", "Requests rejected because the queue was full or too slow.", lambda: gate.turned_away)

        quotas = limits.quotas
        self.watch("keys_turned_away", "Requests beyond the limits of their key.", lambda: quotas.turned_away)

    def watch_state(self, state: State) -> None:
        if state.is_shared:
            self.watch("state_down", "Processes that cannot reach the shared state.", lambda: bool(state.down))
            self.watch("state_failures", "Failed calls of the shared state.", lambda: state.failures)

    def __call__(self, event: Event) -> None:
        route = event.route if event.route in self._routes else OTHER
        self._labelled(
            self._requests, route, _known(event.endpoint, _ENDPOINTS), str(event.status), _known(event.action, _ACTIONS)
        ).inc()
        if event.late:
            self._labelled(self._late, route).inc()
        self._count_checks(route, event)
        for stage in _STAGES & event.stages.keys():
            self._labelled(self._stages, route, stage).observe(event.stages[stage])
        if event.first_segment is not None:
            self._labelled(self._first, route).observe(event.first_segment)
        if event.upstream_error:
            self._labelled(self._upstream, route, _kind(event.upstream_error)).inc()
        for each in event.tried:
            self._labelled(self._tried, route, each.upstream).inc()
            if each.failed:
                self._labelled(self._tried_in_vain, route, each.upstream).inc()
        self._count_usage(route, event)
        if self._shared:
            self._update_gauges()

    def _labelled(self, metric: AnyMetric, *labels: str) -> AnyMetric:
        """Return the metric with these labels; to find it in the metric itself takes ten times as long."""
        key = (metric, labels)
        if key not in self._children:
            self._children[key] = metric.labels(*labels)
        return self._children[key]

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        self._update_gauges()
        if not self._shared:
            return generate_latest(self.registry)
        _remove_dead_gauges(Path(self._shared))
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._shared)
        return generate_latest(registry)

    def _update_gauges(self) -> None:
        for gauge, value in self._watched:
            gauge.set(value())
        if self._breakers is None:
            return
        states = {(route, upstream): is_open for route, upstream, is_open in self._upstreams()}
        for removed in self._known_upstreams - set(states):  # by a reload
            self._breakers.labels(*removed).set(0)
        self._known_upstreams = set(states)
        for labels, is_open in states.items():
            self._breakers.labels(*labels).set(is_open)

    def _count_checks(self, route: str, event: Event) -> None:
        requested = () if event.input is None else event.input.checks
        if event.input is not None:
            self._labelled(self._inputs, route, event.input.action).inc()
        answers = (event, *event.others)
        before = [check for each in answers for check in each.before]
        after = [check for each in answers for check in each.after]
        for when, checks in (("input", requested), ("before", before), ("after", after)):
            for check in checks:
                if check.score is None or not isfinite(check.score):
                    self._labelled(self._unscored, route, check.name).inc()
                else:
                    self._labelled(self._scores, route, check.name, when).observe(check.score)
                if not check.passed:
                    self._labelled(self._failed, route, check.name, when).inc()

    def _count_usage(self, route: str, event: Event) -> None:
        usage = event.usage
        self._labelled(self._calls, route).inc(usage.calls)
        self._labelled(self._retries, route).inc(usage.retries)
        self._labelled(self._tokens, route, "prompt").inc(usage.prompt_tokens)
        self._labelled(self._tokens, route, "completion").inc(usage.completion_tokens)
        if usage.cost is None:
            self._labelled(self._unpriced, route).inc()
        else:
            self._labelled(self._cost, route).inc(usage.cost)
        if event.key and usage.tokens:
            self._labelled(self._key_tokens, event.key).inc(usage.tokens)
            self._labelled(self._key_cost, event.key).inc(usage.cost or 0.0)


def load_metrics() -> Metrics | None:
    """Return the metrics, or None if prometheus-client is not installed."""
    try:
        return Metrics()
    except ImportError:
        return None


def routes(metrics: Metrics | None) -> list[web.RouteDef]:
    async def show(_: web.Request) -> web.Response:
        if metrics is None:
            raise RequestError(501, "Metrics need an extra package. Install it with: pip install 'evenhand[serve]'")
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return [web.get("/metrics", show)]


@contextmanager
def shared_counts() -> Generator[None]:
    """Share counts among the processes that are started in this context."""
    if SHARED in os.environ:
        yield
        return
    with scratch() as folder:
        os.environ[SHARED] = str(folder)
        try:
            yield
        finally:
            del os.environ[SHARED]


def _remove_dead_gauges(folder: Path) -> None:
    """Delete the gauges of processes that have ended."""
    for file in folder.glob("gauge_live*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            file.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _known(value: str, names: frozenset[str]) -> str:
    return value if value in names else OTHER


def _kind(error: str) -> str:
    """`timeout`, `unreachable`, `cut` or an HTTP status."""
    return (
        error
        if error in ("timeout", "unreachable", "cut") or (error.isascii() and error.isdigit() and len(error) == 3)
        else OTHER
    )
