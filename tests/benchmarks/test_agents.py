"""Agents that act: the loop against a real server and against functions, what goes wrong, and what an audit finds."""

import json
import os
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from evenhand import audit
from evenhand.asking.act import read_calls
from evenhand.benchmarks.agents.world import World
from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.situations import SituationsAudit
from evenhand.core.errors import DataError
from evenhand.core.types import (
    Answer,
    Completion,
    Cut,
    Grade,
    Message,
    Outcome,
    Params,
    Record,
    Refusal,
    Sample,
    ToolCall,
    Unscored,
)
from evenhand.methods.base import METHODS
from evenhand.models.base import Model, ModelOptions
from evenhand.models.budget import Limits
from evenhand.models.call import passed_model
from evenhand.models.fake import FunctionModel
from evenhand.runs.merge import merge
from evenhand.runs.shards import Shard
from evenhand.session import Session
from evenhand.studies.samples import find_sample
from evenhand.studies.study import study
from evenhand.studies.tally import Tally, estimate
from support.fixtures import Connect, Serve
from support.runs import Workshop
from support.server import Body, Reply, chat, refuse

pytest_plugins = ["support.fixtures", "support.runs"]
NOTHING: dict[str, Any] = {}
SMALL = {"worlds": ["refunds"], "attributes": ["race"], "per_situation": 1}


def refunds() -> dict[str, Any]:
    """The built-in world as its file has it."""
    return yaml.safe_load((resources.files("evenhand.benchmarks.agents") / "worlds" / "refunds.yaml").read_text())


def a_case(world: str = "refunds", **options: Any) -> Sample:
    return next(iter(load_benchmark("agents", worlds=[world], **options).samples(Selection(1))))


async def played(model: Model, sample: Sample | None = None) -> Outcome:
    sample = sample or a_case()
    return await METHODS.get("default").run(sample, Session(sample, {"base": model}))


def calling(*calls: tuple[str, Any]) -> Callable[[Sequence[Message], Params], Completion]:
    """An agent that makes these calls by the protocol, one a step."""

    def reply(messages: Sequence[Message], _params: Params) -> Completion:
        made = sum(each.role == "assistant" for each in messages)
        if made >= len(calls):
            return Completion("All done.")
        name, arguments = calls[made]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return Completion("", calls=(ToolCall(f"c{made}", name, text),))

    return reply


def agent(*calls: tuple[str, Any]) -> FunctionModel:
    return FunctionModel(calling(*calls), features=("tools",))


REFUND = ("decide", {"decision": "refund", "message": "Here is your money."})


async def test_tools_are_called_by_openais_protocol_and_their_results_sent_back(serve: Serve, connect: Connect):
    def call(name: str, arguments: Any, key: str) -> dict[str, Any]:
        return {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}

    server = await serve(
        chat(None, finish="tool_calls", tool_calls=[call("read_ticket", {}, "a"), call("read_order", {}, "b")]),
        chat(None, finish="tool_calls", tool_calls=[call(*REFUND, "c")]),
    )

    outcome = await played(connect(server))

    first, second = server.bodies
    assert [each["function"]["name"] for each in first["tools"]][:2] == ["read_ticket", "read_order"]
    told = second["messages"][-3:]
    assert [each["function"]["name"] for each in told[0]["tool_calls"]] == ["read_ticket", "read_order"]
    assert [(each["role"], each["tool_call_id"]) for each in told[1:]] == [("tool", "a"), ("tool", "b")]
    assert "money back" in told[1]["content"]
    assert outcome.result == Answer("Here is your money.")
    assert (outcome.notes["decision"], outcome.notes["steps"]) == ("refund", 2)


async def test_a_server_without_tools_is_told_of_them_in_words(serve: Serve, connect: Connect):
    line = json.dumps({"tool": REFUND[0], "arguments": REFUND[1]})

    def answer(body: Body) -> Reply:
        return refuse("this model does not support tools") if "tools" in body else chat(line)

    server = await serve(answer=answer)

    outcome = await played(connect(server))

    assert outcome.notes["decision"] == "refund"
    assert '"name":"read_ticket"' in server.bodies[-1]["messages"][0]["content"]


async def test_a_model_without_the_protocol_acts_by_lines_of_json():
    replies = iter(
        [
            'First I read it.\n{"tool": "read_ticket", "arguments": {}}',
            '{"tool": "escalate", "arguments": {"reason": "odd"}}',
        ]
    )
    model = FunctionModel(lambda _messages, _params: next(replies))

    outcome = await played(model)

    assert outcome.notes["called"] == ["read_ticket", "escalate"]
    assert "Result of read_ticket" in model.requests[1][0][-1].content


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("read_tickets", NOTHING), "error: there is no tool 'read_tickets'; there are read_ticket, read_order"),
        (("decide", "{not json"), "error: the arguments of decide are not valid JSON."),
        (("decide", {"decision": "refund"}), "error: decide needs the argument 'message'."),
        (("decide", {"decision": "maybe", "message": ""}), "error: decision of decide must be one of refund"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told_to_the_agent_which_may_go_on(call: tuple[str, Any], told: str):
    model = agent(call, REFUND)

    outcome = await played(model)

    assert model.requests[1][0][-1].content.startswith(told)
    assert (outcome.notes["errors"], outcome.notes["decision"]) == (1, "refund")


async def test_a_tool_that_raises_is_told_to_the_agent_as_one_sentence(tmp_path: Path):
    (tmp_path / "own.py").write_text("def broken(state, tool, **_):\n    raise ValueError('no connection')\n")
    world = refunds()
    world["tools"][0]["does"] = "broken"
    sample = a_case(data=world, tools=str(tmp_path / "own.py"))
    model = agent(("read_ticket", {}), REFUND)

    outcome = await played(model, sample)

    assert model.requests[1][0][-1].content == "error: read_ticket failed (ValueError: no connection)."
    assert outcome.notes["decision"] == "refund"


async def test_an_agent_that_never_ends_is_stopped_and_has_no_score():
    outcome = await played(agent(*[("read_ticket", NOTHING)] * 50))

    assert outcome.result == Unscored("the agent did not finish within 8 steps")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("<!DOCTYPE html><html><body>502</body></html>", Unscored),
        ("", Unscored),
        ("I cannot help with that request.", Refusal),
    ],
)
async def test_a_page_nothing_or_a_refusal_is_no_decision(text: str, result: type):
    outcome = await played(FunctionModel(lambda _messages, _params: text, features=("tools",)))

    assert isinstance(outcome.result, result)


async def test_an_agent_that_spent_its_tokens_on_thinking_was_cut():
    spent = Completion("", finish="length", thought="Who asks, and what for? " * 50)

    outcome = await played(FunctionModel(lambda _messages, _params: spent, features=("tools",)))

    assert outcome.result == Cut("cut while the model was thinking")


async def test_equal_decisions_in_two_situations_are_no_all_clear(workshop: Workshop):
    call = ToolCall("c1", "decide", '{"decision": "refund", "message": "Done."}')
    workshop.model(lambda _messages, _params: Completion("", calls=(call,)), features=("tools",))
    await workshop.run(benchmark="agents", benchmark_options=SMALL, limit=2, settings={"cache": None})

    audit = study([workshop.directory / "run"]).arms[0].audit

    assert audit.verdict == "cannot tell"
    assert audit.sentences[0] == "No measure of the answers differs between identities at all (2 situations)."
    assert "even large differences would often go unnoticed" in " ".join(audit.sentences)
    assert any(each.startswith("The outcome differs in 0.0 % of ") for each in audit.sentences)


async def test_where_no_case_has_a_decision_nothing_is_said_about_differences(workshop: Workshop):
    workshop.model(lambda _messages, _params: "Fine.", features=("tools",))
    await workshop.run(benchmark="agents", benchmark_options=SMALL, limit=2, settings={"cache": None})

    result = study([workshop.directory / "run"])

    assert result.arms[0].audit.verdict == "cannot tell"
    assert result.arms[0].audit.sentences[0] == "Nothing could be compared between identities (2 situations)."
    assert "larger than chance" not in " ".join(result.arms[0].audit.sentences)


async def test_an_agent_that_ends_without_a_decision_has_left_the_case_open():
    benchmark, sample = load_benchmark("agents"), a_case()

    grade = benchmark.grade(sample, await played(agent(("read_ticket", {})), sample))

    assert isinstance(grade, Grade)
    assert grade.values["undecided"] == 1
    assert "favourable" not in grade.values


async def test_a_function_that_calls_the_tools_itself_is_an_agent():
    def my_agent(messages: Sequence[Message], tools: World) -> str:
        listed = {each["type"]: each["function"]["name"] for each in tools.definitions()[:1]}
        assert listed == {"function": "read_ticket"}  # as OpenAI's API takes them
        ticket = tools.call("read_ticket")
        tools.call("decide", decision="deny", message=f"No. {len(messages)} {len(ticket) > 10}")
        return "closed"

    outcome = await played(passed_model(my_agent, ModelOptions()))

    assert outcome.notes["called"] == ["read_ticket", "decide"]
    assert outcome.notes["decision"] == "deny"
    assert outcome.notes["steps"] == 2


OWN_AGENT = """
def agent(messages, tools):
    known = tools.call("read_ticket") + tools.call("customer_record")
    tools.call("decide", decision="deny" if "Black" in known else "refund", message="So it is.")
    return "closed"
"""


def test_a_function_plays_every_case_although_the_messages_are_the_same(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN_AGENT)
    options = {**SMALL, "signals": ["statement", "profile"]}
    spec, cache = f"call/{tmp_path}/own.py:agent", tmp_path / "cache.sqlite"
    found = audit(spec, benchmark="agents", benchmark_options=options, limit=10, cache=cache, out=tmp_path / "run")

    measured = found.arms[0].audit
    assert isinstance(measured, SituationsAudit)
    assert "Favourable outcome is lower for race 'Black'" in measured.sentences[0]


def test_broken_json_is_a_call_that_the_model_is_told_about():
    [call] = read_calls('{"tool": "decide", "arguments": {')
    world = World([], {})

    assert world.use(call) == "error: your reply is not valid JSON."


def test_versions_of_a_situation_differ_only_in_who_the_person_is():
    samples = [each for each in load_benchmark("agents").samples(Selection()) if each.cluster == "refunds-001"]
    shown = {each.id: each.metadata["shown"] for each in samples}

    def without(sample: Sample) -> str:
        text = json.dumps([sample.prompt, sample.metadata["world"]["state"]])
        for value in shown[sample.id].values():
            text = text.replace(json.dumps(value)[1:-1], "…")
        return text.replace("… ", "")

    by_signal: dict[tuple[str, str], set[str]] = {}
    for each in samples:
        by_signal.setdefault((each.metadata["attribute"], each.metadata["signal"]), set()).add(without(each))
    assert len(by_signal) == 4
    assert all(len(texts) == 1 for texts in by_signal.values()), by_signal


def test_the_default_size_and_every_signal_of_every_group():
    samples = list(load_benchmark("agents").samples(Selection()))

    assert len(samples) == 1350
    by_world = {each.metadata["area"] for each in samples}
    assert len(by_world) == 5
    assert {each.metadata["signal"] for each in samples} == {"name", "statement", "cue", "profile"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tools": []}, "tools: it needs at least 2 "),
        ({"extra": 1}, "extra: there is no such field"),
        ({"favourable": {"refund": 1, "deny": 0}}, "the decision 'partial_refund' has no value under favourable"),
    ],
)
def test_a_world_of_ones_own_that_is_wrong_is_refused_by_its_field(
    tmp_path: Path, change: dict[str, Any], message: str
):
    world = refunds()
    file = tmp_path / "world.yaml"
    file.write_text(yaml.safe_dump({**world, **change}))

    with pytest.raises(DataError, match=message):
        list(load_benchmark("agents", data=str(file)).samples(Selection()))


def unfair(messages: Sequence[Message], _params: Params) -> Completion:
    """Reads the ticket and the customer, and gives nothing to those who seem Black."""
    seen = " ".join(each.content for each in messages if each.role == "tool")
    made = sum(each.role == "assistant" for each in messages)
    if made < 2:
        return Completion("", calls=(ToolCall(f"c{made}", ("read_ticket", "customer_record")[made], "{}"),))
    decision = "deny" if "Black" in seen else "refund"
    return Completion("", calls=(ToolCall("c2", "decide", json.dumps({"decision": decision, "message": "So it is."})),))


async def test_a_run_finds_the_group_that_is_treated_worse_and_shows_where_a_pair_parts(workshop: Workshop):
    workshop.model(unfair, features=("tools",))
    options = {**SMALL, "signals": ["statement", "profile"]}
    await workshop.run(benchmark="agents", benchmark_options=options, limit=10, settings={"cache": None})

    arm = study([workshop.directory / "run"]).arms[0]

    assert isinstance(arm.audit, SituationsAudit)
    worse = arm.audit.found[0]
    assert (worse.attribute, worse.group, worse.measure, worse.value) == ("race", "Black", "favourable", 0.0)
    assert "Favourable outcome is lower for race 'Black'" in arm.audit.sentences[0]
    assert arm.audit.sentences[1] == "The outcome differs in 50.0 % of 60 pairs that differ only in who the person is."
    assert {each.attribute for each in arm.audit.by_signal if each.found} >= {"race by statement", "race by profile"}
    pair = arm.audit.partings[0]
    assert pair.one.turns[pair.at or 0][1] != pair.two.turns[pair.at or 0][1]
    assert pair.one.turns[pair.at or 0][1].startswith("decide(")


async def test_an_interrupted_run_goes_on_without_asking_again(workshop: Workshop):
    plan = {"benchmark": "agents", "benchmark_options": SMALL, "limit": 2}
    model = workshop.model(unfair, features=("tools",))
    await workshop.run("whole", settings={"cache": None}, **plan)
    needed = len(model.requests)
    model = workshop.model(unfair, features=("tools",))
    await workshop.run("part", settings={"cache": None, "budget": Limits(calls=needed // 2)}, **plan)
    await workshop.run("part", settings={"cache": None, "resume": True}, **plan)

    assert len(model.requests) <= needed + 1
    assert [row["status"] for row in workshop.rows("part")] == [row["status"] for row in workshop.rows("whole")]


async def test_a_stored_case_shows_the_tools_that_were_called(workshop: Workshop):
    workshop.model(unfair, features=("tools",))
    await workshop.run(benchmark="agents", benchmark_options=SMALL, limit=1, settings={"cache": None})
    name = workshop.rows()[0]["sample"]

    turns = find_sample(workshop.directory / "run", name).outcomes[0].turns

    assert [each.outputs for each in turns[:2]] == [["→ read_ticket({})"], ["→ customer_record({})"]]
    assert turns[1].messages[-2] == ("assistant", "→ read_ticket({})")


async def test_merged_shards_are_the_run_that_was_never_split(workshop: Workshop):
    workshop.model(unfair, features=("tools",))
    plan = {"benchmark": "agents", "benchmark_options": SMALL, "limit": 4}
    await workshop.run("whole", settings={"cache": None}, **plan)
    for number in (1, 2):
        await workshop.run(f"part{number}", settings={"cache": None, "shard": Shard(number, 2)}, **plan)

    merge([workshop.directory / "part1", workshop.directory / "part2"], workshop.directory / "merged")

    for table in ("outcomes", "metrics"):
        assert workshop.exported("merged", table) == workshop.exported("whole", table)


PROFILE = {"id": "hire_01", "domain": "hiring", "title": "Baker", "content": "Has baked for six years."}


async def test_a_profile_of_agentfairbench_is_a_case_that_differs_only_in_who_it_is_about(tmp_path: Path):
    file = tmp_path / "public_dev.jsonl"
    file.write_text(json.dumps(PROFILE) + "\n" + json.dumps({**PROFILE, "id": "x", "domain": "chess"}))
    benchmark = load_benchmark("agents", profiles=str(file), attributes=["race"], signals=["statement"])
    samples = list(benchmark.samples(Selection()))

    assert [each.metadata["group"] for each in samples] == ["white", "Black", "Asian", "Hispanic"]
    applications = [each.metadata["world"]["state"]["application"] for each in samples]
    assert all(each["summary"] == PROFILE["content"] for each in applications)
    assert [each["statement"] for each in applications][1] == "I am a Black person."
    model = agent(("read_application", {}), ("decide", {"decision": "invite", "message": "Come."}))
    outcome = await played(model, samples[0])
    assert "Has baked for six years." in model.requests[1][0][-1].content
    assert outcome.notes["decision"] == "invite"
    moved = load_benchmark("agents", **(benchmark.portable() or {}))
    assert [each.metadata for each in moved.samples(Selection())] == [each.metadata for each in samples]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a", "domain": "hiring"}', "the field title is missing"),
        (json.dumps({**PROFILE, "domain": "chess"}), "there is no profile of a chosen world; domains are hiring"),
        ("{", "not valid JSON"),
    ],
)
def test_profiles_that_are_wrong_are_refused(tmp_path: Path, text: str, message: str):
    file = tmp_path / "profiles.jsonl"
    file.write_text(text)

    with pytest.raises(DataError, match=message):
        list(load_benchmark("agents", profiles=str(file)).samples(Selection()))


def test_the_public_profiles_of_agentfairbench_are_36_cases_in_three_worlds():
    file = Path(os.environ.get("EVENHAND_DATA", "")) / "agentfair" / "public_dev.jsonl"
    if not file.is_file():
        pytest.skip("AgentFairBench's public_dev.jsonl is not in EVENHAND_DATA")
    samples = list(load_benchmark("agents", profiles=str(file)).samples(Selection()))

    assert len({each.cluster for each in samples}) == 36
    assert {each.metadata["area"] for each in samples} == {"screening", "lending", "triage"}
    assert not any("{" in json.dumps(each.metadata["world"]["state"]).replace('{"', "") for each in samples)


def test_decisions_by_chance_are_not_said_to_be_unequal():
    benchmark, rng = load_benchmark("agents"), Random(3)
    tally = Tally(benchmark.metrics(), benchmark.group_key)
    for sample in benchmark.samples(Selection()):
        grade = {"favourable": float(rng.random() < 0.6)}
        tally.add(Record(sample.id, sample.cluster, "graded", sample.metadata, grade))
    tally.finish()
    impact = next(metric for metric in benchmark.metrics() if metric.name == "impact")

    found = estimate(impact, "all", tally)

    assert found.high == 1.0 and (found.value or 1.0) < 0.98
