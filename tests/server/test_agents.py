"""An agent behind the guard: the tool protocol stays valid both ways, and what it says in a tool is judged."""

import json
from typing import Any

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.errors import ModelError
from evenhand.core.types import Answer, Outcome
from evenhand.methods.base import METHODS
from evenhand.models.base import ModelOptions
from evenhand.models.openai import OpenAIModel
from evenhand.session import Session
from support.fixtures import Serve
from support.guard_server import RUDE, Guarding, Served, route
from support.server import Body, Reply, chat, outlast


def calls(name: str, **arguments: Any) -> Reply:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return chat(None, finish="tool_calls", tool_calls=[{"id": name, "type": "function", "function": function}])


async def played(guard: Served) -> Outcome:
    case = next(iter(load_benchmark("agents", worlds=["refunds"]).samples(Selection(1))))
    async with OpenAIModel("guarded", ModelOptions(base_url=guard.url, retries=0)) as model:
        return await METHODS.get("default").run(case, Session(case, {"base": model}))


async def test_an_agent_behind_the_guard_plays_its_case_to_the_end(serve: Serve, guarding: Guarding):
    behind = await serve(calls("read_ticket"), calls("decide", decision="refund", message="You get it back."))
    guard = await guarding(route(behind.url))

    outcome = await played(guard)

    assert outcome.result == Answer("You get it back.")
    assert outcome.notes["called"] == ["read_ticket", "decide"]
    assert [each["role"] for each in behind.bodies[1]["messages"][-2:]] == ["assistant", "tool"]


async def test_rude_words_in_a_tool_do_not_pass_the_guard(serve: Serve, guarding: Guarding):
    behind = await serve(calls("decide", decision="deny", message=RUDE))
    guard = await guarding(route(behind.url, policy="block", method="default"))

    outcome = await played(guard)

    assert RUDE not in str(outcome)


@pytest.mark.parametrize(
    ("policy", "action", "withheld"),
    [
        ({"policy": "flag"}, "flagged", False),
        ({"policy": "revise"}, "unrevised", False),  # words are revised; the arguments of a call are only judged
        ({"policy": "revise", "on_unrevised": "block"}, "blocked", True),
        ({"policy": "block"}, "blocked", True),
    ],
)
async def test_a_judged_call_leaves_the_protocol_valid_and_the_case_goes_on(
    serve: Serve, guarding: Guarding, policy: dict[str, str], action: str, withheld: bool
):
    def answer(body: Body) -> Reply:
        """Asks the customer rudely, then decides; a revision is kind."""
        if "tools" not in body:
            return chat("Could you send a photo, please?")
        asked = any(each["role"] == "tool" for each in body["messages"])
        if asked:
            return calls("decide", decision="refund", message="You get it back.")
        return calls("ask_customer", question=RUDE)

    behind = await serve(answer=answer)
    guard = await guarding(route(behind.url, **policy))

    outcome = await played(guard)

    assert guard.server.events.recent[0].action == action
    said = [text for who, text, _ in outcome.notes["turns"] if who == "model"]
    assert (RUDE not in " ".join(said)) is withheld, said
    for body in behind.bodies:  # every call that was sent on has its result, in the order of the protocol
        open_calls: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            else:
                assert not open_calls
                open_calls = [each["id"] for each in message.get("tool_calls") or ()]
                assert all(json.loads(each["function"]["arguments"]) for each in message.get("tool_calls") or ())
        assert not open_calls


async def test_every_turn_has_a_budget_of_its_own(serve: Serve, guarding: Guarding):
    behind = await serve(
        outlast(6, calls("read_ticket")),
        outlast(6, calls("read_order")),
        outlast(6, calls("decide", decision="refund", message="You get it back.")),
    )
    guard = await guarding(route(behind.url, latency=10))

    outcome = await played(guard)

    assert outcome.notes["called"] == ["read_ticket", "read_order", "decide"]  # 18 seconds in all


async def test_a_turn_beyond_its_budget_is_a_failure_and_no_decision(serve: Serve, guarding: Guarding):
    behind = await serve(calls("read_ticket"), outlast(60))
    guard = await guarding(route(behind.url, latency=10))

    with pytest.raises(ModelError, match="did not answer in time"):
        await played(guard)
