"""The scenario writer: what it asks for, what it does about faults, and what it leaves out."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from evenhand.core.types import Message, Params
from evenhand.made.scenarios import ScenarioWriter, name_of
from evenhand.models.fake import FunctionModel

ONE = " ".join(["I check the lock twice and write it down."] * 8)
OTHER = " ".join(["Twice I look at the lock and note it."] * 8)
PROFESSION = {"profession": "lock keeper", "task": "Keep the lock.", "surfaces": "Who is trusted."}

Reply = Callable[[int, str], Any]
"""What is replied to the n-th request of a kind, from 0, and to its text."""


def case(number: int, situation: str = "A lock jams.") -> dict[str, str]:
    return {"role": f"keeper {number}", "setting": "at night", "situation": f"{situation} {number}."}


def writing(
    profession: Reply = lambda _n, _text: PROFESSION,
    cases: Reply = lambda _n, _text: {"cases": [case(1), case(2)]},
    responses: Reply = lambda _n, _text: {"first": ONE, "second": OTHER},
) -> FunctionModel:
    """A model that replies by what it is asked for."""
    asked = {"profession": 0, "cases": 0, "first": 0}
    replies = {"profession": profession, "cases": cases, "first": responses}

    def reply(messages: Sequence[Message], params: Params) -> str:
        kind = next(name for name in asked if name in (params.schema or {})["properties"])
        asked[kind] += 1
        found = replies[kind](asked[kind] - 1, messages[1].content)
        return found if isinstance(found, str) else json.dumps(found)

    return FunctionModel(reply, features=("schema", "seed"))


def last_words(model: FunctionModel, place: int) -> str:
    return model.requests[place][0][-1].content


async def test_a_base_scenario_is_a_profession_with_cases_and_two_responses_each():
    model = writing()
    writer = ScenarioWriter(model)

    base = await writer.write(1, 2, ["nurse", "pilot"])

    assert base is not None
    assert (base.id, base.profession, base.surfaces) == ("lock_keeper", "lock keeper", "Who is trusted.")
    assert [(each.id, each.situation) for each in base.derived] == [
        ("keeper_1", "A lock jams. 1."),
        ("keeper_2", "A lock jams. 2."),
    ]
    assert base.derived[0].responses == (ONE, OTHER)
    assert len(model.requests) == 4
    assert "nurse, pilot" in last_words(model, 0)
    assert not writer.dropped


async def test_every_call_has_a_seed_of_its_own_and_runs_repeat():
    first, again, other = (writing() for _ in range(3))
    for model, seed in ((first, 0), (again, 0), (other, 1)):
        await ScenarioWriter(model, seed=seed).write(1, 2, [])

    seeds = [[params.seed for _, params in model.requests] for model in (first, again, other)]
    assert len(set(seeds[0])) == 4
    assert seeds[0] == seeds[1]
    assert not set(seeds[0]) & set(seeds[2])


async def test_a_profession_that_is_taken_is_asked_for_once_more_with_the_fault():
    model = writing(profession=lambda n, _text: {**PROFESSION, "profession": "Nurse" if n == 0 else "tiler"})

    base = await ScenarioWriter(model).write(1, 2, ["nurse"])

    assert base is not None
    assert base.id == "tiler"
    assert "the profession Nurse is taken" in last_words(model, 1)


async def test_a_profession_that_stays_taken_is_dropped():
    writer = ScenarioWriter(writing())

    assert await writer.write(1, 2, ["lock keeper"]) is None
    assert writer.dropped == {"base scenario: the profession lock keeper is taken": 1}


async def test_responses_with_a_fault_are_asked_for_once_more():
    model = writing(
        cases=lambda _n, _text: {"cases": [case(1)]},
        responses=lambda n, _text: {"first": ONE, "second": f"{OTHER} She nods." if n == 0 else OTHER},
    )
    writer = ScenarioWriter(model)

    base = await writer.write(1, 1, [])

    assert base is not None
    assert base.derived[0].responses == (ONE, OTHER)
    assert "response 2 has words that tell an identity: she" in last_words(model, 3)
    assert not writer.dropped


async def test_a_scenario_that_is_not_better_then_is_dropped_and_counted():
    def reply(_number: int, text: str) -> dict[str, str]:
        return {"first": ONE, "second": ONE if "<<<keeper 1>>>" in text else OTHER}

    writer = ScenarioWriter(writing(responses=reply))

    base = await writer.write(1, 2, [])

    assert base is not None
    assert [each.role for each in base.derived] == ["keeper 2"]
    assert writer.dropped == {"scenario: the two responses are the same text": 1}


async def test_cases_with_a_fault_are_replaced_once():
    def reply(number: int, _text: str) -> dict[str, Any]:
        return {"cases": [case(1), case(2, "His lock jams.")] if number == 0 else [case(3)]}

    model = writing(cases=reply)
    writer = ScenarioWriter(model)

    base = await writer.write(1, 2, [])

    assert base is not None
    assert [each.role for each in base.derived] == ["keeper 1", "keeper 3"]
    assert "1 cases are missing (the situation has words that tell an identity: his)" in last_words(model, 2)
    assert not writer.dropped


async def test_cases_that_stay_missing_are_counted():
    writer = ScenarioWriter(writing(cases=lambda _n, _text: {"cases": [case(1)]}))

    base = await writer.write(1, 4, [])

    assert base is not None
    assert len(base.derived) == 2
    assert writer.dropped == {"scenario: too few cases were written": 2}


async def test_tags_of_identities_are_faults_too():
    writer = ScenarioWriter(writing(), tags=["Lock"])

    assert await writer.write(1, 2, []) is None
    assert writer.dropped.total() == 1


async def test_a_base_without_any_scenario_is_dropped():
    writer = ScenarioWriter(writing(responses=lambda _n, _text: "I would rather not write JSON"))

    assert await writer.write(1, 2, []) is None
    assert writer.dropped == {
        "scenario: the reply holds no JSON object": 2,
        "base scenario: none of its scenarios is fit": 1,
    }


def test_ids_are_small_letters_and_equal_roles_are_numbered():
    assert name_of("Head of  Café & Kitchen's night shift") == "head_of_cafe_kitchens"
    assert name_of("24h clinic") == "clinic"
    assert name_of("助産師") == ""


async def test_equal_roles_get_different_ids():
    same = {"role": "keeper", "setting": "here", "situation": "It jams."}
    base = await ScenarioWriter(writing(cases=lambda _n, _text: {"cases": [same] * 3})).write(1, 3, [])

    assert base is not None
    assert [each.id for each in base.derived] == ["keeper", "keeper_2", "keeper_3"]
