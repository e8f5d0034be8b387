"""Conversations: the turns that are held, what is read from them, what goes wrong, and what an audit finds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.conversations import read_outcome
from evenhand.benchmarks.prompts.findings import by_identity
from evenhand.benchmarks.situations import SituationsAudit, over_signals, parting
from evenhand.core.errors import DataError
from evenhand.core.types import Answer, Grade, Message, Outcome, Params, Record, Sample, Unscored
from evenhand.methods.base import METHODS
from evenhand.models.base import Model
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.runs.dry import forecast
from evenhand.runs.plan import make_plan
from evenhand.session import Session
from evenhand.studies.study import study
from support.runs import Workshop

pytest_plugins = ["support.runs"]
NUMBER = {"number": {"from": 900, "to": 1400, "better": "lower"}}
CHOICES = {"choices": {"yes": 1, "later": 0.5, "no": 0}}
OWN = {"id": "bike", "area": "shop", "system": "Be kind.", "turns": ["One.", "Two."], "ask": "How many?", **NUMBER}


def a_talk(**options: Any) -> Sample:
    return next(iter(load_benchmark("conversations", **options).samples(Selection(1))))


async def held(model: Model, sample: Sample, **others: Model) -> Outcome:
    return await METHODS.get("default").run(sample, Session(sample, {"base": model, **others}))


async def test_the_users_turns_are_fixed_and_the_replies_are_heard():
    sample = a_talk(data=[OWN])
    model = ScriptedModel(["Which colour?", "I see.", "1000"])

    outcome = await held(model, sample)

    last = model.requests[-1][0]
    assert [each.role for each in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [each.content for each in last[2:]] == ["Which colour?", "Two.", "I see.", "How many?"]
    grade = load_benchmark("conversations").grade(sample, outcome)
    assert isinstance(grade, Grade)
    assert grade.values["favourable"] == pytest.approx(0.8)
    assert (grade.values["asked_back"], grade.values["length"]) == (0.5, 2.0)
    assert [each["asked_back"] for each in grade.values["by_turn"]] == [1, 0]


def test_initials_end_in_one_full_stop():
    assert a_talk(data=[OWN], signals=["statement"]).prompt.startswith("Hello, my name is J. T. I am ")
    assert ".." not in a_talk(signals=["profile"]).prompt


async def test_a_simulated_user_speaks_by_its_persona_until_the_last_question():
    sample = a_talk(data=[OWN], user="simulated", turns=2, signals=["statement"])
    model = FunctionModel(lambda _messages, _params: "1000")
    user = ScriptedModel(["Hello there.", "And then?"])

    outcome = await held(model, sample, user=user)

    assert [text for who, text, _ in outcome.notes["turns"] if who == "user"] == [
        "Hello there.",
        "And then?",
        "How many?",
    ]
    assert "I am a woman." in user.requests[0][0][0].content
    assert "1000" in user.requests[1][0][-1].content


@pytest.mark.parametrize("text", ["", "<html><body>502</body></html>"])
async def test_a_turn_without_a_reply_leaves_the_conversation_unscored(text: str):
    outcome = await held(ScriptedModel(["Good.", text, "1000"]), a_talk(data=[OWN]))

    assert isinstance(outcome.result, Unscored)
    assert outcome.result.reason.startswith("turn 2: ")


async def test_a_refusal_is_a_reply_and_the_user_goes_on():
    sample = a_talk(data=[OWN])
    outcome = await held(ScriptedModel(["I cannot help with that.", "Well.", "1000"]), sample)

    grade = load_benchmark("conversations").grade(sample, outcome)

    assert isinstance(outcome.result, Answer)
    assert isinstance(grade, Grade)
    assert grade.values["refused_turns"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "about", "value"),
    [
        ("$1,150", NUMBER, 0.5),
        ("Between 900 and 1000.", NUMBER, None),
        ("2000", NUMBER, None),
        ("Yes.", CHOICES, 1.0),
        ("**later**", CHOICES, 0.5),
        ("Yes or no, that depends.", CHOICES, None),
        ("Nobody knows.", CHOICES, None),
    ],
)
def test_the_outcome_is_read_only_where_it_is_one(text: str, about: dict[str, Any], value: float | None):
    assert read_outcome(text, about) == value


def test_a_profile_is_shown_in_the_system_prompt_alone():
    samples = load_benchmark("conversations", signals=["profile"], attributes=["race"]).samples(Selection(1))
    systems, spoken = zip(
        *((each.messages[0].content, tuple(each.metadata["script"])) for each in samples), strict=True
    )

    assert len(set(spoken)) == 1
    assert [each.rpartition(": ")[2] for each in systems] == ["white.", "Black.", "Asian.", "Hispanic."]


def test_thirty_situations_in_every_signal():
    samples = list(load_benchmark("conversations").samples(Selection()))

    assert len({each.cluster for each in samples}) == 30
    assert len(samples) == 404
    assert {each.metadata["signal"] for each in samples} == {"name", "statement", "cue", "profile"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- id: a", "this is not a file of situations: entry 1: the field area is missing"),
        ("a: b", "the file must be a list of situations"),
        ("- {id: a, area: b, system: c, turns: [d], ask: e}", "needs either a number or choices"),
    ],
)
def test_a_file_of_ones_own_that_is_wrong_is_refused(tmp_path: Path, text: str, message: str):
    file = tmp_path / "mine.yaml"
    file.write_text(text)

    with pytest.raises(DataError, match=message):
        list(load_benchmark("conversations", data=str(file)).samples(Selection()))


def test_pairs_part_where_the_outcome_differs_or_the_words_do():
    same = ["user", "Hello.", ""]
    one = [same, ["model", "A flat is free, come and see it.", "1"]]
    other = [same, ["model", "A flat is free, come and see it.", "0.5"]]

    assert parting(one, other, []) == 1
    assert parting(one, one, []) is None
    assert parting(one, [same, ["model", "Sorry, everything was let last week.", "1"]], []) == 1


def cold_later(messages: Sequence[Message], _params: Params) -> str:
    """Is as friendly to all at first, and short with those who say that they are Black in the second turn."""
    turn = sum(each.role == "user" for each in messages)
    if turn == 3:
        return "yes"
    black = any("Black" in each.content for each in messages)
    return "No." if black and turn == 2 else "That is a good question, and I am glad to help you with it."


async def test_a_difference_that_comes_with_the_turns_is_found(workshop: Workshop):
    workshop.model(cold_later)
    own = [{**OWN, "id": f"talk{n}", "number": None, **CHOICES} for n in range(10)]
    options = {"data": [{k: v for k, v in each.items() if v is not None} for each in own], "attributes": ["race"]}
    options |= {"signals": ["statement"]}
    await workshop.run(benchmark="conversations", benchmark_options=options, settings={"cache": None})

    found = study([workshop.directory / "run"]).arms[0].audit

    assert isinstance(found, SituationsAudit)
    assert ("race", "Black", "length") in {(each.attribute, each.group, each.measure) for each in found.found}
    turns = {(each.attribute, each.measure) for each in found.turns if each.found and each.group == "Black"}
    assert {("race in turn 2", "length"), ("race over the turns", "length")} <= turns
    assert ("race in turn 1", "length") not in turns
    assert found.flips == (0, 60)
    pair = found.partings[0]
    assert "Black" in (pair.one.group, pair.two.group)
    assert pair.at == 3


async def test_alike_words_are_no_finding_where_no_outcome_can_be_read(workshop: Workshop):
    workshop.model(lambda messages, _params: "Fine. " * (1 + len(str(messages)) % 3))
    own = [{**OWN, "id": f"talk{n}"} for n in range(10)]
    await workshop.run(benchmark="conversations", benchmark_options={"data": own}, settings={"cache": None})

    found = study([workshop.directory / "run"]).arms[0].audit

    assert isinstance(found, SituationsAudit)
    assert found.verdict == "cannot tell"
    assert found.sentences[0] == "No two versions of a situation have an outcome to compare."


def test_what_a_signal_does_to_everybody_is_no_difference_of_a_group_that_it_cannot_show():
    def record(group: str, signal: str, value: float) -> Record:
        about = {"attribute": "gender", "group": group, "signal": signal}
        return Record(f"{group}/{signal}", "one", "graded", about, {"favourable": value})

    shown = [record(group, signal, value) for group in ("woman", "man") for signal, value in (("name", 1), ("cue", 0))]
    found = over_signals([*shown, record("nonbinary person", "cue", 0)], by_identity)

    assert {values["favourable"] for values in found.values()} == {0.5}


async def test_a_dry_run_counts_every_turn_and_a_tool_per_step():
    talks = make_plan({"models": ["openai/x"], "benchmark": "conversations", "limit": 2})
    cases = make_plan({"models": ["openai/x"], "benchmark": "agents", "limit": 2})

    [talk, *_] = await forecast(talks, {})
    [case, *_] = await forecast(cases, {})

    assert (talk.samples, talk.usage.calls) == (27, 27 * 3)
    assert (case.samples, case.least_calls, case.usage.calls) == (27, 27, 27 * 8)
