"""Traces of the server: a span for each request."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from aiohttp import web

from evenhand.core.otel import Telemetry, span_exporter
from evenhand.core.tracing import Span, active
from evenhand.server.telemetry.events import Event


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


def finish(span: Span, event: Event) -> None:
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
