"""The guard says which checks run; a bias check is one word; and what could not be improved is not passed over."""

import logging
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import PlanError
from evenhand.guards.policy import BLOCKED_TEXT, GuardPolicy
from evenhand.guards.types import Guarded
from support.fixtures import Serve
from support.guarding import ASKED, KIND, RUDE, by_turn, guard_of, is_judge
from support.server import Body, Reply, chat

DISCRIMINATORY = (
    "Black applicants are usually less qualified, so I would pick the White candidate.",
    "For the technical role choose the man; women are better at taking notes.",
    "At 58 she will not learn the new system any more, so leave her out of the training.",
    "A Muslim tenant will bring trouble into the house; rent it to somebody else.",
    "People in a wheelchair should not deal with customers; offer him the back office.",
)
HARMFUL = '{"harm": 90, "harm_reason": "It judges people by their group."}'


def judging(text: str, revised: str = KIND) -> Any:
    """A model whose answers repeat a stereotype until they are revised, and a judge who finds that harmful."""

    def answer(body: Body) -> Reply:
        if is_judge(body):
            return chat(HARMFUL if text in str(body["messages"]) else '{"harm": 0, "harm_reason": ""}')
        return chat(revised if "had faults" in str(body["messages"]) else text)

    return answer


@pytest.mark.parametrize("text", DISCRIMINATORY)
async def test_a_guard_that_does_not_check_bias_says_so_beside_the_answer(serve: Serve, text: str):
    async with guard_of(await serve(chat(text))) as guard:
        found = await guard(ASKED)

    assert found.action == "passed"
    assert found.checks.not_run == ("bias",)
    assert "Bias was not checked." in found.verdicts


@pytest.mark.parametrize("text", DISCRIMINATORY)
async def test_a_bias_check_with_a_judge_is_one_word(serve: Serve, text: str):
    async with guard_of(
        await serve(answer=judging(text)), evaluators=("toxicity", "bias"), judge="openai/judge"
    ) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.why) == (KIND, "revised", ("bias",))
    assert found.checks.not_run == ()
    assert [each.split(" (")[0] for each in found.checks.run] == ["toxicity", "bias"]


async def test_the_list_names_the_scorer_and_no_model(serve: Serve):
    async with guard_of(await serve(chat(KIND)), evaluators=("toxicity", "bias"), judge="openai/judge") as guard:
        assert str(guard.checks).startswith("checks: toxicity (builtin ")
        assert str(guard.checks).endswith("), bias (a judge)")
        assert "judge" not in str(guard.checks).replace("(a judge)", "")
        assert str(guard.checks) in repr(guard)


@pytest.mark.parametrize(
    ("method", "evaluators", "said"),
    [
        ("default", (), "checks: none; toxicity and bias are not checked"),
        ("default", ("bias",), "checks: bias (the model itself)"),
        ("default", ("goal:must not give advice",), "(the model itself); toxicity and bias are not checked"),
        ("stardtox", ("bias",), "checks: bias (the model itself)"),
        ("stardtox:bias=llm", ("toxicity",), "checks: bias (the model itself), toxicity (builtin "),
    ],
)
async def test_what_a_method_adds_or_replaces_is_in_the_list(serve: Serve, method: str, evaluators: Any, said: str):
    async with guard_of(await serve(chat(KIND)), method=method, evaluators=evaluators) as guard:
        assert said in str(guard.checks)


def test_a_guard_in_python_says_at_start_what_it_does_not_check(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO), evenhand.guard("fake/Yes.") as guard:
        found = guard.sync(ASKED)
    with caplog.at_level(logging.INFO), evenhand.guard("fake/Yes.", evaluators=("toxicity", "bias")):
        pass

    first, second = caplog.records
    assert first.levelname == "WARNING"
    assert first.message.endswith('; bias is not checked: evaluators=("toxicity", "bias"), judge=MODEL')
    assert (second.levelname, "not checked" in second.message) == ("INFO", False)
    assert found.checks == guard.checks


async def streamed_answer(guard: Any) -> tuple[str, Guarded]:
    segments = [each async for each in guard.stream({"messages": ASKED})]
    return "".join(each.text for each in segments), segments[-1].final


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("wanted", "text", "action", "why"),
    [
        ("block", BLOCKED_TEXT, "blocked", ("toxicity",)),
        ("flag", RUDE, None, ("toxicity",)),
        ("pass", RUDE, None, ()),
    ],
)
async def test_what_follows_if_no_revision_passes(
    serve: Serve, streamed: bool, wanted: str, text: str, action: str | None, why: tuple[str, ...]
):
    async with guard_of(await serve(answer=by_turn(RUDE)), on_unrevised=wanted) as guard:
        if streamed:
            said, found = await streamed_answer(guard)
        else:
            found = await guard(ASKED)
            said = found.text

    assert (said.strip(), found.why) == (text, why)
    assert found.action == (action or ("tried" if streamed else "unrevised"))
    assert found.iterations == 2


async def test_by_default_it_is_returned_with_the_reason_and_a_stream_ends(serve: Serve):
    async with guard_of(await serve(answer=by_turn(RUDE))) as guard:
        found = await guard(ASKED)
        said, final = await streamed_answer(guard)

    assert (found.text, found.action, found.why) == (RUDE, "unrevised", ("toxicity",))
    assert (said.strip(), final.action) == (BLOCKED_TEXT, "blocked")


async def test_a_method_without_revisions_withholds_in_a_stream_too(serve: Serve):
    async with guard_of(await serve(answer=by_turn(RUDE)), method="default", on_unrevised="block") as guard:
        found = await guard(ASKED)
        said, final = await streamed_answer(guard)

    assert (found.text, found.action) == (BLOCKED_TEXT, "blocked")
    assert (said.strip(), final.action) == (BLOCKED_TEXT, "blocked")


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"on_unrevised": "no"}, "block, flag, pass"), ({"action": "block", "on_unrevised": "flag"}, "remove it")],
)
def test_a_wrong_choice_is_one_sentence(fields: dict[str, Any], said: str):
    with pytest.raises(PlanError, match=said):
        GuardPolicy(**fields)
