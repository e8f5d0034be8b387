"""The server's log: one JSON object per line on stderr, without keys, and by default without prompts and answers.

A separate thread writes the lines, so that a slow reader of stderr delays no request. If the queue is full, lines are
dropped and counted.

Mail addresses, phone numbers, card numbers (with a valid check digit), network addresses, and keys or tokens become
`[email]`, `[phone]`, `[card]`, `[ip]` and `[secret]` in texts that are stored redacted. Names, street addresses and
other data without a fixed form are not redacted. Every pattern is bounded, and long texts are read in windows: a
regular expression holds the interpreter until it is done, even in a thread, and the event loop would wait for it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import logging.handlers
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TextIO, TypeVar

import orjson

from evenhand.guards.types import Check
from evenhand.server.telemetry.events import Event, OtherAnswer

A = TypeVar("A", Event, OtherAnswer)
Texts = Literal["none", "redacted", "full"]
"""How prompts, answers and critiques are stored."""

WINDOW = 32_768
"""Characters in which a match is looked for at once."""
_REACH = 16_500
"""Characters of the longest match."""

_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,10000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    r"|\beyJ[\w-]{8,4096}\.[\w-]{8,8192}(?:\.[\w-]{0,4096})?"  # a signed token
    r"|\b(?:(?:evh|sk|pk|rk|gsk|hf|xai|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_]|AKIA|AIza|ya29\.)[A-Za-z0-9_-]{16,512}"
)
# Most texts contain none of these, and searching for them is far cheaper than matching the patterns.
_SECRET_MARKS = (
    *("evh-", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "gsk_", "hf_", "xai-", "ghp_", "gho_", "ghs_", "github_pat_"),
    *("glpat-", "xox", "AKIA", "AIza", "ya29.", "eyJ", "-----BEGIN"),
)
_SECRET_NAMES = ("bearer", "basic", "key", "token", "secret", "passw", "pwd")
_MANY_DIGITS = re.compile(r"[0-9](?:[^0-9A-Za-z]{0,3}[0-9]){6}")
_DOTTED = re.compile(r"\.[0-9]{1,3}\.")
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:")
_NAMED_SECRET = re.compile(  # a value labelled as a secret, whatever its form; the label stays
    r"(?i)(\bbearer[ ]{1,3}|\bbasic[ ]{1,3}(?=[A-Za-z0-9+/]{8})"
    r"|\b(?:api[_-]?key|key|token|secret|password|passwd|pwd)[\"']{0,1}[ ]{0,3}[=:][ ]{0,3}[\"']{0,1})"
    r"([^\s\"'&,;<>]{6,512})"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b")
_CARD = re.compile(r"(?<![\d.])[0-9](?:[ -]?[0-9]){12,18}(?!\d)")
_PHONE = re.compile(
    r"(?<![\w.+])(?:\+|00)[1-9](?:[ ().\-/]{0,2}\d){7,14}(?!\d)"  # with a country code
    r"|(?<![\w.+-])\(?\d{3}\)?[ .\-]{1,2}\d{3}[ .\-]\d{4}(?!\d)"  # North American format
    r"|(?<![\w.+-])0\d{2,4}[ \-/]\d{3,4}[ \-]?\d{3,5}(?!\d)"  # with a trunk zero
)
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
WAITING = 10_000
"""Queue limit in lines."""
END_SECONDS = 5.0
"""Time limit for the last lines at shutdown."""
_request_log = logging.getLogger("evenhand.server.requests")
_FIELDS = "evenhand_fields"


def redacted(text: str) -> str:
    """Replace recognised personal data and secrets by their kind."""
    text = without_secrets(text)
    if "@" in text:
        text = _replaced(_EMAIL, "[email]", text)
    if _COLONS.search(text):
        text = _replaced(_IPV6, _address, text)
    if _DOTTED.search(text):
        text = _replaced(_IPV4, _address, text)
    if _MANY_DIGITS.search(text):
        text = _replaced(_PHONE, "[phone]", _replaced(_CARD, _card, text))
    return text


def without_secrets(text: str) -> str:
    """Replace keys and tokens; everything that is logged goes through this."""
    if any(mark in text for mark in _SECRET_MARKS):
        text = _replaced(_SECRETS, "[secret]", text)
    lower = text.lower()
    if any(name in lower for name in _SECRET_NAMES):
        text = _replaced(_NAMED_SECRET, _labelled, text)
    return text


def _replaced(pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str], text: str) -> str:
    """Return `pattern.sub(by, text)`, in windows if the text is long."""
    if len(text) <= WINDOW:
        return pattern.sub(by, text)
    parts: list[str] = []
    kept = 0
    for match in _matches(pattern, text):
        parts += [text[kept : match.start()], by if isinstance(by, str) else by(match)]
        kept = match.end()
    return "".join([*parts, text[kept:]])


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    place = 0
    while place < len(text):
        match = pattern.search(text, place, place + WINDOW + _REACH)
        if match is not None and match.start() < place + WINDOW:
            yield match
            place = match.end()
        else:
            place += WINDOW


def _labelled(match: re.Match[str]) -> str:
    return f"{match[1]}[secret]"


def with_texts(event: Event, texts: Texts) -> Event:
    """Return the event with full texts, redacted texts, or none."""
    if texts == "full":
        return event

    def kept(text: str) -> str:
        return redacted(text) if texts == "redacted" else ""

    def checked(checks: tuple[Check, ...]) -> tuple[Check, ...]:
        return tuple(replace(check, words=kept(check.words), problem=kept(check.problem)) for check in checks)

    def answered(answer: A) -> A:
        before, after = checked(answer.before), checked(answer.after)
        return replace(answer, first=kept(answer.first), text=kept(answer.text), before=before, after=after)

    return replace(
        answered(event),
        prompt=kept(event.prompt),
        input=event.input and replace(event.input, checks=checked(event.input.checks)),
        others=tuple(map(answered, event.others)),
    )


def _address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "[ip]"


def _card(match: re.Match[str]) -> str:
    digits = [int(sign) for sign in match[0] if sign.isdigit()]
    return "[card]" if _has_check_digit(digits) and len(set(digits)) > 1 else match[0]


def _has_check_digit(digits: list[int]) -> bool:
    """Whether the digits pass the Luhn check."""
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


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
        "not_checked": event.checks and list(event.checks.not_run),
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
