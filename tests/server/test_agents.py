"""An agent behind the guard: the tool protocol stays valid both ways, and what it says in a tool is judged."""

import json
from typing import Any

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.types import Answer, Outcome
from evenhand.methods.base import METHODS
from evenhand.models.base import ModelOptions
from evenhand.models.openai import OpenAIModel
from evenhand.session import Session
from support.fixtures import Serve
from support.guard_server import RUDE, Guarding, Served, route
from support.server import Reply, chat


def calls(name: str, **arguments: Any) -> Reply:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return chat(None, finish="tool_calls", tool_calls=[{"id": name, "type": "function", "function": function}])


async def played(guard: Served) -> Outcome:
    case = next(iter(load_benchmark("agents", worlds=["refunds"]).samples(Selection(1))))
    async with OpenAIModel("guarded", ModelOptions(base_url=guard.url)) as model:
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
