"""OpenTelemetry (extra `otel`): exports spans and events as the standard OTEL_* variables say.

Nothing of OpenTelemetry is imported unless an option or the environment asks for it. The rest of the house knows only
the spans of `tracing.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import MissingExtraError, PlanError
from evenhand.core.tracing import Kind, Span, Value
from evenhand.core.version import versions

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OF_SPANS, _OF_LOGS = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_CLOSE_MILLISECONDS = 5_000
"""Time limit for what still waits at the end."""


class Telemetry:
    """Begins spans and exports them from a thread, and their events as log records where `events` takes them."""

    def __init__(self, exporter: SpanExporter, events: LogRecordExporter | None = None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if named else {"service.name": "evenhand"})
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("evenhand", versions()["evenhand"])
        self._events: LoggerProvider | None = None
        self._logger: Logger | None = None
        if events is not None:
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

            self._events = LoggerProvider(resource=resource, shutdown_on_exit=False)
            self._events.add_log_record_processor(BatchLogRecordProcessor(events))
            self._logger = self._events.get_logger("evenhand", versions()["evenhand"])

    def root(self, name: str, kind: Kind, attributes: Mapping[str, Value], context: Any = None) -> Span:
        """A span below `context`, or at the top."""
        return _Span(self._tracer, self._logger, name, kind, attributes, context)

    def close(self) -> None:
        """Export what waits; it takes a few seconds if the collector does not answer."""
        for provider in (self._provider, self._events):
            if provider is not None:
                provider.force_flush(_CLOSE_MILLISECONDS)
                provider.shutdown()


class _Span:
    """A span of OpenTelemetry, with its context passed by hand: streams may end in another task than they began in."""

    def __init__(
        self,
        tracer: Tracer,
        logger: Logger | None,
        name: str,
        kind: Kind,
        attributes: Mapping[str, Value],
        context: Any,
    ) -> None:
        from opentelemetry.trace import SpanKind

        self._tracer, self._logger = tracer, logger
        self._span: OtelSpan = tracer.start_span(name, context, SpanKind[kind.upper()], dict(attributes))

    def child(self, name: str, kind: Kind, attributes: Mapping[str, Value]) -> Span:
        return _Span(self._tracer, self._logger, name, kind, attributes, self._context())

    def set(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(dict(attributes))

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        if self._logger is None:
            return
        from opentelemetry._logs import LogRecord, SeverityNumber

        self._logger.emit(
            LogRecord(
                context=self._context(),
                severity_number=SeverityNumber.INFO,
                attributes=dict(attributes),
                event_name=name,
            )
        )

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

    def _context(self) -> Any:
        from opentelemetry.trace import set_span_in_context

        return set_span_in_context(self._span)


def load_telemetry(*, wanted: bool) -> Telemetry | None:
    """Return what exports spans and events if that is wanted or the environment names a collector; otherwise None."""
    exporter = span_exporter(wanted=wanted)
    if exporter is None:
        return None
    logs = _named(_ENDPOINT, _OF_LOGS) or not _named(_OF_SPANS)
    if not logs or os.environ.get("OTEL_LOGS_EXPORTER", "otlp") == "none":
        return Telemetry(exporter)
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    return Telemetry(exporter, OTLPLogExporter())


def span_exporter(*, wanted: bool) -> SpanExporter | None:
    """Return what sends spans to the collector that the environment names; None if neither it nor an option asks."""
    environment = os.environ
    exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return None
    if not wanted and not _named(_ENDPOINT, _OF_SPANS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        missing = MissingExtraError("tracing", "otel")
        if wanted:
            raise missing from error
        log = logging.getLogger("evenhand.server")
        log.warning("A trace collector is named in the environment, but there are no traces. %s", missing)
        return None
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    if exporter != "otlp" or protocol != "http/protobuf":
        raise PlanError(
            f"Traces are exported with OTLP over http/protobuf, not with {exporter} over {protocol}. Change "
            "OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_PROTOCOL."
        )
    return OTLPSpanExporter()


def _named(*variables: str) -> bool:
    return any(os.environ.get(name) for name in variables)
