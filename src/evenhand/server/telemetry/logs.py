"""The server's log: one JSON object per line on stderr, without keys, and by default without prompts and answers.

A separate thread writes the lines, so that a slow reader of stderr delays no request. If the queue is full, lines are
dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import queue
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TextIO

import orjson

from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.redact import Texts, with_texts, without_secrets

WAITING = 10_000
"""Queue limit in lines."""
END_SECONDS = 5.0
"""Time limit for the last lines at shutdown."""

_request_log = logging.getLogger("evenhand.server.requests")
_FIELDS = "evenhand_fields"


class RequestLog:
    """A sink that logs one line per request, or only those whose errors clients do not see."""

    def __init__(self, texts: Texts = "none", *, only_failed: bool = False) -> None:
        self.texts: Texts = texts
        self._only_failed = only_failed

    def __call__(self, event: Event) -> None:
        failed = event.error and (event.upstream_error or not 400 <= event.status < 500)
        if self._only_failed and not failed:
            return
        level = logging.ERROR if event.status >= 500 else logging.INFO
        if _request_log.isEnabledFor(level):
            # The thread that writes the log computes the fields: redaction takes long on long texts.
            kept = with_texts(event, "none") if self.texts == "none" else event
            _request_log.log(level, "request", extra={_FIELDS: partial(fields_of, kept, self.texts)})


def fields_of(event: Event, texts: Texts) -> Mapping[str, Any]:
    """Return the log fields of a request, without empty ones."""
    usage = event.usage
    fields = {
        "id": event.id,
        "endpoint": event.endpoint,
        "route": event.route,
        "key": event.key,
        "client": event.client,
        "status": event.status,
        "action": event.action,
        "input": event.input and event.input.action,
        "why": [without_secrets(reason) for reason in event.why],
        "late": event.late,
        "stream": event.stream,
        "first_segment": event.first_segment,
        "seconds": {stage: round(seconds, 4) for stage, seconds in event.stages.items()},
        "calls": usage.calls,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cost": usage.cost,
        "error": without_secrets(event.error),
        "upstream_error": event.upstream_error,
        "upstream": event.upstream,
        "upstreams_tried": event.upstreams_tried or None,
    }
    if texts != "none":
        kept = with_texts(event, texts)
        fields |= {name: without_secrets(getattr(kept, name)) for name in ("prompt", "first", "text")}
    return {name: value for name, value in fields.items() if value not in ("", [], {}, None, False)}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": without_secrets(record.getMessage()),
            **getattr(record, _FIELDS, dict[str, Any])(),
        }
        if record.exc_info:
            line["traceback"] = without_secrets(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


class _Enqueue(logging.handlers.QueueHandler):
    """Puts records into the queue; if it is full, the record is dropped and counted."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # formatted by the thread; never sent to another process


class _Writer(threading.Thread):
    """Writes the queued records; unlike the standard listener, it never blocks shutdown forever."""

    def __init__(self, waiting: queue.Queue[logging.LogRecord | None], handler: logging.Handler) -> None:
        super().__init__(name="evenhand-log", daemon=True)
        self._waiting = waiting
        self._handler = handler

    def run(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._handler.handle(record)

    def stop(self) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=END_SECONDS)
            self.join(END_SECONDS)


class ServerLog:
    """A context in which the server's loggers write to a stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        writer = logging.StreamHandler(stream or sys.stderr)
        writer.setFormatter(JsonLines())
        waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(WAITING)
        self._enqueue = _Enqueue(waiting)
        self._writer = _Writer(waiting, writer)
        self._loggers = [logging.getLogger(name) for name in ("evenhand", "aiohttp", "asyncio", "opentelemetry")]

    @property
    def dropped(self) -> int:
        """Lines that were lost because the reader was too slow."""
        return self._enqueue.dropped

    def __enter__(self) -> Self:
        for each in self._loggers:
            each.addHandler(self._enqueue)
            each.setLevel(logging.INFO)
            each.propagate = False
        self._writer.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in self._loggers:
            each.removeHandler(self._enqueue)
            each.setLevel(logging.NOTSET)
            each.propagate = True
        self._writer.stop()
