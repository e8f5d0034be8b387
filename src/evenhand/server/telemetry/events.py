"""Events, one per request, passed to metrics, log, audit file and live page; and a span for each request."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from aiohttp import web

from evenhand.core.otel import Telemetry, span_exporter
from evenhand.core.tracing import Span, active
from evenhand.core.types import Usage
from evenhand.guards.types import Action, Check, CheckList, InputRecord
from evenhand.guards.upstreams import Tried

CLIENT_CLOSED = 499
"""Status of a request whose client disconnected before its answer ended; it is only recorded, never sent."""
Recorded = Literal[Action, "bypassed", "scored", "embedded"]
"""What a request can end with: an action of the guard, or none, because the client's key switched the method off or
asked for scores or embeddings."""
KEPT = 200
"""Requests that the live page can show."""
LONGEST = 8_000
"""Maximum characters of a text that are kept in memory after its request."""

_log = logging.getLogger("evenhand.server")


@dataclass(frozen=True, slots=True)
class OtherAnswer:
    """One of several answers, as `Event` has the worst."""

    action: str
    why: tuple[str, ...]
    first: str
    text: str
    before: tuple[Check, ...]
    after: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One request, as metrics, audit file, log lines and the live page see it."""

    id: str
    time: float
    """Arrival in seconds since 1970."""
    route: str
    """The route's name; "" if the request named no known route."""
    endpoint: str
    key: str = ""
    """The name of the client's key, never the key; "" without one."""
    client: str = ""
    """The client's network address."""
    status: int = 200
    action: str = ""
    """One of `Recorded`; "" for a rejected or failed request."""
    why: tuple[str, ...] = ()
    prompt: str = ""
    first: str = ""
    """The model's first answer."""
    text: str = ""
    """What the client got."""
    input: InputRecord | None = None
    """The check of the request; None if there was none."""
    checks: CheckList | None = None
    """Which checks the route runs; None if no answer was asked for."""
    before: tuple[Check, ...] = ()
    after: tuple[Check, ...] = ()
    others: tuple[OtherAnswer, ...] = ()
    """Further answers (`n`), for counts and the audit file; the page has none of them."""
    late: bool = False
    stream: bool = False
    first_segment: float | None = None
    """Seconds until the first checked text was sent, for streams."""
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    usage: Usage = Usage()
    error: str = ""
    """One sentence on what went wrong, without keys."""
    upstream_error: str = ""
    """How the model's endpoint failed: `timeout`, `unreachable`, `cut` or an HTTP status; "" if it did not."""
    tried: tuple[Tried, ...] = ()
    """The calls of upstreams, in order of their ends."""

    @property
    def upstream(self) -> str:
        """The name of the upstream that was asked last and did not fail; "" if all did."""
        return next((each.upstream for each in reversed(self.tried) if not each.failed), "")

    @property
    def upstreams_tried(self) -> int:
        return len({each.upstream for each in self.tried})


Sink = Callable[[Event], None]


class Events:
    """The event bus: every sink gets every event; a failing sink is logged and never affects a request."""

    def __init__(self, *sinks: Sink, kept: int = KEPT) -> None:
        self.recent: deque[Event] = deque(maxlen=kept)
        self.failures = 0
        """Number of sink failures."""
        self._sinks = list(sinks)

    def add(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def publish(self, event: Event) -> None:
        """Pass the event to all sinks; they do not block, so this may be called on the event loop."""
        for sink in self._sinks:
            try:
                sink(event)
            except Exception as error:
                self.failures += 1
                _log.error("An event was lost: %s: %s", type(error).__name__, error)
        self.recent.append(shortened(event))


def shortened(event: Event) -> Event:
    """Cut the event's texts and critiques, so that memory does not depend on what clients send."""
    event = replace(event, others=()) if event.others else event
    requested = event.input.checks if event.input else ()
    words = (check.words for check in (*requested, *event.before, *event.after))
    texts = (event.prompt, event.first, event.text, *words)
    if all(len(text) <= LONGEST for text in texts):
        return event
    return replace(
        event,
        prompt=cut(event.prompt, LONGEST),
        first=cut(event.first, LONGEST),
        text=cut(event.text, LONGEST),
        input=event.input and replace(event.input, checks=_shortened(event.input.checks)),
        before=_shortened(event.before),
        after=_shortened(event.after),
    )


def _shortened(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    return tuple(replace(check, words=cut(check.words, LONGEST)) for check in checks)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


class Traces(Telemetry):
    """Begins the spans of requests and exports them from a thread."""

    @contextmanager
    def request(self, request: web.Request) -> Generator[Span]:
        """The span of a request, below the caller's if it sends a traceparent."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # Only this header: what else a client sends must not reach the model's endpoint.
        carrier = {"traceparent": request.headers.get("traceparent", "")}
        parent = TraceContextTextMapPropagator().extract(carrier)
        resource = request.match_info.route.resource
        path = resource.canonical if resource else ""
        attributes = {"http.request.method": request.method, "http.route": path, "url.scheme": request.scheme}
        span = self.root(f"{request.method} {path}".strip(), "server", attributes, parent)
        with active(span):
            try:
                yield span
            finally:
                span.end()


def finish_span(span: Span, event: Event) -> None:
    """Describe the request of a span, as far as the event has no texts."""
    span.set(
        {
            "http.response.status_code": event.status,
            "evenhand.request.id": event.id,
            "evenhand.route": event.route,
            "evenhand.action": event.action,
            "evenhand.key": event.key,
            "evenhand.late": event.late,
        }
    )
    if event.status >= 500:
        span.fail(event.upstream_error or str(event.status))


def load_traces(*, wanted: bool) -> Traces | None:
    """Return the traces if the config wants them or the environment names a collector; otherwise None."""
    exporter = span_exporter(wanted=wanted)
    return None if exporter is None else Traces(exporter)
