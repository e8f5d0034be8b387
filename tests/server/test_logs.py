"""The log: one JSON object a line, without keys, and without texts unless asked for."""

import io
import json
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from evenhand.core.types import Usage
from evenhand.server.telemetry import logs as logs_module
from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.logs import RequestLog, ServerLog

KEY = "evh-" + "Ab3_" * 10
EVENT = Event(
    "r1",
    0.0,
    "chat",
    "/v1/chat/completions",
    key="team",
    action="revised",
    why=("toxicity",),
    prompt="Mail jo@mail.example",
    first="Rude words",
    text="Kind words",
    stages={"total": 0.1234567},
    usage=Usage(calls=2, prompt_tokens=10, completion_tokens=5, cost=0.01),
)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().rstrip("\n").split("\n")]


def test_a_request_is_one_line_without_its_texts():
    stream = io.StringIO()
    with ServerLog(stream):
        RequestLog()(EVENT)

    (line,) = lines(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "message": "request",
        "id": "r1",
        "endpoint": "/v1/chat/completions",
        "route": "chat",
        "key": "team",
        "status": 200,
        "action": "revised",
        "why": ["toxicity"],
        "seconds": {"total": 0.1235},
        "calls": 2,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost": 0.01,
    }


@pytest.mark.parametrize(("texts", "prompt"), [("full", "Mail jo@mail.example"), ("redacted", "Mail [email]")])
def test_texts_are_in_it_when_asked_for(texts: Any, prompt: str):
    stream = io.StringIO()
    with ServerLog(stream):
        RequestLog(texts)(EVENT)

    (line,) = lines(stream)
    assert (line["prompt"], line["first"], line["text"]) == (prompt, "Rude words", "Kind words")


def test_texts_are_redacted_by_the_thread_that_writes(monkeypatch: pytest.MonkeyPatch):
    threads: set[str] = set()

    def watched(event: Event, _texts: Any) -> Event:
        threads.add(threading.current_thread().name)
        return event

    monkeypatch.setattr(logs_module, "with_texts", watched)
    with ServerLog(io.StringIO()):
        RequestLog("redacted")(replace(EVENT, text="Kind words. " * 80_000))

    assert threads == {"evenhand-log"}


def test_no_key_reaches_the_log():
    stream = io.StringIO()
    log = logging.getLogger("evenhand.server")
    with ServerLog(stream):
        RequestLog("full")(replace(EVENT, prompt=f"I use {KEY}", error=f"401 for Bearer {KEY}", status=502))
        log.warning("sent with %s", KEY)
        try:
            raise ValueError(f"Authorization: Bearer {KEY}")
        except ValueError:
            log.exception("failed")

    assert KEY not in stream.getvalue()
    assert [line["level"] for line in lines(stream)] == ["error", "warning", "error"]
    assert "ValueError" in lines(stream)[2]["traceback"]


def test_line_breaks_and_odd_characters_stay_within_one_line():
    stream = io.StringIO()
    with ServerLog(stream):
        logging.getLogger("evenhand.server").info('two\nlines "and" \u2028 more\x1b[31m')

    (line,) = lines(stream)
    assert line["message"] == 'two\nlines "and" \u2028 more\x1b[31m'
    assert stream.getvalue().count("\n") == 1


def test_a_reader_that_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs_module, "WAITING", 5)
    go = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            go.wait()
            return super().write(text)

    log = ServerLog(Stuck())
    with log:
        for _ in range(20):
            RequestLog()(EVENT)
        assert log.dropped >= 14
        go.set()


def test_afterwards_logging_is_as_before(caplog: pytest.LogCaptureFixture):
    stream = io.StringIO()
    with ServerLog(stream):
        pass

    logging.getLogger("evenhand.server").warning("later")

    assert stream.getvalue() == ""
    assert "later" in caplog.text
