"""The bus: what sinks and the memory of recent requests see."""

from dataclasses import replace

import pytest

from evenhand.guards.types import Check
from evenhand.server.telemetry.events import LONGEST, Event, Events

EVENT = Event("r1", 1.0, "chat", "/v1/chat/completions", prompt="Hello", text="Hi")


def test_every_sink_sees_every_event():
    first: list[Event] = []
    second: list[Event] = []
    events = Events(first.append)
    events.add(second.append)

    events.publish(EVENT)

    assert first == second == [EVENT]
    assert list(events.recent) == [EVENT]


def test_a_failing_sink_is_logged_and_the_others_go_on(caplog: pytest.LogCaptureFixture):
    def broken(event: Event) -> None:
        raise OSError("disk full")

    seen: list[Event] = []
    events = Events(broken, seen.append)

    events.publish(EVENT)

    assert seen == [EVENT]
    assert events.failures == 1
    assert "disk full" in caplog.text


def test_only_the_last_events_are_kept():
    events = Events(kept=3)

    for number in range(10):
        events.publish(replace(EVENT, id=str(number)))

    assert [event.id for event in events.recent] == ["7", "8", "9"]


def test_long_texts_are_cut_in_memory_but_not_for_sinks():
    seen: list[Event] = []
    events = Events(seen.append)
    long = "a" * (LONGEST + 1)
    check = Check("toxicity", 0.5, 0.1, False, words=long)

    events.publish(replace(EVENT, prompt=long, first=long, text=long, before=(check,), after=(check,)))

    assert seen[0].prompt == long
    (kept,) = events.recent
    texts = (kept.prompt, kept.first, kept.text, kept.before[0].words, kept.after[0].words)
    assert {len(text) for text in texts} == {LONGEST}
    assert kept.text.endswith("…")
