"""Events of a run as log records, and the count of calls that are under way."""

import asyncio
import logging

import pytest

from evenhand.core.events import counted_activity, event, set_place
from evenhand.core.types import Message, Params
from evenhand.models.budget import Budget, Limits, MeteredModel
from support.fixtures import Connect, Serve
from support.server import chat, hang, raw

QUESTION = [Message("user", "Who?")]


def test_an_event_names_its_arm_and_sample(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "evenhand")
    set_place(arm="cot", sample="Age-1")

    event("failure", "no answer", reason="500", texts={"messages": ["secret"]})
    set_place()

    (record,) = caplog.records
    assert (record.event, record.getMessage()) == ("failure", "no answer")
    assert record.fields == {"arm": "cot", "sample": "Age-1", "reason": "500"}


async def test_a_retry_is_an_event_with_the_reason_and_is_counted(
    serve: Serve, connect: Connect, waits: list[float], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "evenhand")
    server = await serve(raw(b"too busy", 503), chat("B"))
    activity = counted_activity()

    await MeteredModel(connect(server), None, Budget(Limits())).generate(QUESTION, Params())

    assert (activity.retries, activity.calls, activity.held) == (1, 0, 0)
    (record,) = caplog.records
    assert record.event == "retry"
    assert "503: too busy" in record.fields["reason"]


async def test_calls_that_wait_for_a_slot_are_not_in_flight(serve: Serve, connect: Connect):
    server = await serve(hang())
    activity = counted_activity()
    model = MeteredModel(connect(server, concurrency=2), None, Budget(Limits()))
    calls = [asyncio.create_task(model.generate(QUESTION, Params())) for _ in range(5)]

    await server.has_seen(2)

    assert (activity.calls, activity.in_flight) == (5, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (activity.calls, activity.in_flight) == (0, 0)
