"""OpenTelemetry traces (extra `otel`): a span per request, exported as the standard OTEL_* variables say.

Nothing of OpenTelemetry is imported unless the config or the environment asks for traces.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from evenhand.errors import MissingExtraError, PlanError
from evenhand.server.telemetry.events import Event
from evenhand.tracing import Kind, Span, Value, active
from evenhand.version import versions

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_CLOSE_MILLISECONDS = 5_000
"""Time limit for the last spans at shutdown."""
_log = logging.getLogger("evenhand.server")


class Traces:
    """Begins the spans of requests and exports them from a thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if named else {"service.name": "evenhand"})
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("evenhand", versions()["evenhand"])

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
        span = _Span(self._tracer, f"{request.method} {path}".strip(), "server", attributes, parent)
        with active(span):
            try:
                yield span
            finally:
                span.end()

    def close(self) -> None:
        """Export what waits; it takes a few seconds if the collector does not answer."""
        self._provider.force_flush(_CLOSE_MILLISECONDS)
        self._provider.shutdown()


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


class _Span:
    """A span of OpenTelemetry, with its context passed by hand: streams may end in another task than they began in."""

    def __init__(self, tracer: Tracer, name: str, kind: Kind, attributes: Mapping[str, Value], context: Any) -> None:
        from opentelemetry.trace import SpanKind

        self._tracer = tracer
        self._span: OtelSpan = tracer.start_span(name, context, SpanKind[kind.upper()], dict(attributes))

    def child(self, name: str, kind: Kind, attributes: Mapping[str, Value]) -> Span:
        from opentelemetry.trace import set_span_in_context

        return _Span(self._tracer, name, kind, attributes, set_span_in_context(self._span))

    def set(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(dict(attributes))

    def fail(self, reason: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", reason)
        self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        self._span.end()

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def load_traces(*, wanted: bool) -> Traces | None:
    """Return the traces if the config wants them or the environment names a collector; otherwise None."""
    environment = os.environ
    exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return None
    if not wanted and not any(environment.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        missing = MissingExtraError("Tracing", "otel")
        if wanted:
            raise missing from error
        _log.warning("A trace collector is named in the environment, but there are no traces. %s", missing)
        return None
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    if exporter != "otlp" or protocol != "http/protobuf":
        raise PlanError(
            f"Traces are exported with OTLP over http/protobuf, not with {exporter} over {protocol}. Change "
            "OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_PROTOCOL."
        )
    return Traces(OTLPSpanExporter())
