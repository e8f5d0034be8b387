"""Functions and Model objects as models of a run: what they get, how a run names them, and how it goes on."""

import asyncio
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand import Completion, FunctionModel, Limits, Message, Params, Settings, UsageError
from evenhand.runs.stored import StoredRun
from support.fixtures import Connect, Serve
from support.server import chat
from support.shell import Shell


def answers_a(prompt: str) -> str:
    assert "A)" in prompt
    return "A"


async def answers_b(messages: Sequence[Message]) -> str:
    assert messages[-1].role == "user"
    return "B"


class Team:
    def __call__(self, messages: Sequence[Message], params: Params) -> Completion:
        return Completion("C")


def specs(run: Path) -> list[dict[str, str]]:
    stored = StoredRun.open(run)
    try:
        return [{role: model.spec for role, model in each.items()} for each in stored.plan.models]
    finally:
        stored.store.close()


def test_a_function_is_audited_under_its_name(tmp_path: Path):
    found = evenhand.audit(answers_a, out=tmp_path / "run", limit=4)

    assert found.arms[0].statuses == {"graded": 4}
    assert specs(tmp_path / "run") == [{"base": f"python/{__name__}.answers_a"}]
    assert len(found.provenance["run"]["models"][0]["source"]) == 16


async def test_async_functions_objects_partials_and_lambdas_are_audited(tmp_path: Path):
    third = functools.partial(lambda text, prompt: text, "A")
    fourth, fifth = (lambda prompt: "B"), (lambda prompt: "C")
    given = [answers_b, Team(), third, fourth, fifth, FunctionModel(lambda *_: "A", spec="fake/mine")]

    found = await evenhand.audit.async_(given, out=tmp_path / "run", limit=2)

    assert [arm.statuses for arm in found.arms] == [{"graded": 2}] * 6
    names = [each["base"].removeprefix(f"python/{__name__}.") for each in specs(tmp_path / "run")]
    test = "test_async_functions_objects_partials_and_lambdas_are_audited"
    assert names == ["answers_b", "Team", *(f"{test}.lambda{n}" for n in ("", "-2", "-3")), "fake/mine"]


def test_each_role_has_its_own_and_one_function_with_two_roles_is_one_model(tmp_path: Path):
    heard: list[str] = []

    def both(prompt: str, role: str) -> str:
        heard.append(role)
        return '{"rating": 3}' if role == "judge" else "A"

    evenhand.audit(
        {"base": both, "judge": {"spec": both, "timeout": 5}}, out=tmp_path / "run", methods=["mabrf"], limit=1
    )

    assert set(heard) == {"solver", "judge"}
    [roles] = specs(tmp_path / "run")
    assert roles["base"] == roles["judge"]


def test_a_function_that_takes_params_gets_temperature_tokens_and_schema(tmp_path: Path):
    asked: list[Params] = []

    def answer(messages: Sequence[Message], params: Params) -> str:
        asked.append(params)
        return '{"answer": "A"}' if params.schema else "Let me think."

    evenhand.audit(answer, out=tmp_path / "run", methods=["cot:temperature=0.5,max_tokens=99"], limit=2)

    assert {(each.temperature, each.max_tokens) for each in asked if each.schema is None} == {(0.5, 99)}
    assert {each.temperature for each in asked if each.schema is not None} == {0}


def test_a_function_that_ignores_the_schema_is_asked_in_words_from_then_on(tmp_path: Path):
    asked: list[bool] = []

    def answer(messages: Sequence[Message], params: Params) -> str:
        asked.append(params.schema is not None)
        return "A"

    found = evenhand.audit(answer, out=tmp_path / "run", limit=12, settings=Settings(concurrency=1))

    assert found.arms[0].statuses == {"graded": 12}
    assert len(asked) == 12 and asked[0] and not asked[-1]


@pytest.mark.parametrize("wrapped", [False, True])
def test_thoughts_of_functions_and_models_are_set_apart(tmp_path: Path, wrapped: bool):
    def thoughtful(messages: Sequence[Message], params: Params) -> str:
        return "<think>Is it B, or C?</think>A"

    model = FunctionModel(thoughtful) if wrapped else thoughtful
    found = evenhand.audit(model, out=tmp_path / "run", limit=2)

    replies = [turn["generation"]["completions"][0] for turn in found.rows("turns")]
    assert {(each["text"], each["thought"]) for each in replies} == {("A", "Is it B, or C?")}


def test_a_run_goes_on_with_the_same_function_and_with_no_other(tmp_path: Path):
    calls: list[str] = []

    def answer(prompt: str) -> str:
        calls.append(prompt)
        return "A"

    def go_on(model: Any, **settings: Any) -> Any:
        return evenhand.audit(model, out=tmp_path / "run", limit=6, settings=Settings(concurrency=1, **settings))

    assert go_on(answer, budget=Limits(calls=2)).arms[0].pending == 4
    assert go_on(answer, resume=True).arms[0].pending == 0
    assert len(calls) == 6

    def answer(prompt: str) -> str:
        return "B"

    with pytest.raises(evenhand.PlanError, match="another plan"):
        go_on(answer, resume=True)


def test_the_command_line_says_where_such_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    shell = Shell(monkeypatch, capsys)
    evenhand.audit(answers_a, out=tmp_path / "run", limit=2)
    spec = f"python/{__name__}.answers_a"

    assert shell("audit", spec, "--limit", "2", "--out", tmp_path / "run", "--resume") == 2
    assert shell.err.startswith(f"evenhand: {spec} is a function that was passed in Python; go on there")


async def test_a_model_object_is_not_closed_and_used_again(tmp_path: Path):
    class Closing(FunctionModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    model = Closing(lambda *_: "A")

    for number in range(2):
        evenhand.audit(model, out=tmp_path / str(number), limit=2)
    with evenhand.guard(model, judge=model) as guard:
        assert guard.sync([{"role": "user", "content": "Hi"}]).text == "A"

    assert not model.closed
    assert len(model.requests) >= 5


async def test_one_model_object_serves_calls_in_scripts_and_awaited_ones(
    tmp_path: Path, serve: Serve, connect: Connect
):
    model = connect(await serve(chat("A")))

    for out in ("one", "two"):  # in a thread, since a call that is not awaited would block the server
        await asyncio.to_thread(evenhand.audit, model, out=tmp_path / out, limit=2)
    await evenhand.audit.async_(model, out=tmp_path / "three", limit=2)

    statuses = [evenhand.compare(tmp_path / out).arms[0].statuses for out in ("one", "two", "three")]
    assert statuses == [{"graded": 2}] * 3


def test_a_guard_stands_in_front_of_a_function():
    with evenhand.guard({"base": lambda prompt: "Bread is baked.", "judge": "fake/yes"}) as guard:
        answer = guard.sync([{"role": "user", "content": "How is bread made?"}])

    assert (answer.text, answer.action) == ("Bread is baked.", "passed")


def test_a_function_that_takes_too_long_is_told_with_the_argument_that_allows_more(tmp_path: Path):
    async def never(prompt: str) -> str:
        await asyncio.Event().wait()
        return ""

    found = evenhand.audit({"spec": never, "timeout": 0.01}, out=tmp_path / "run", limit=1)

    [(status, reason, _)] = found.arms[0].reasons
    assert status == "failed"
    assert reason.endswith("within 0.01 seconds; pass {'spec': FUNCTION, 'timeout': SECONDS} to allow more.")


def test_a_guard_takes_a_dict_with_the_address(tmp_path: Path):
    guard = evenhand.guard({"spec": "openai/m", "base_url": "http://localhost:1/v1", "retries": 0})

    with guard, pytest.raises(evenhand.ModelError, match="localhost:1"):
        guard.sync([{"role": "user", "content": "Hi"}])


def test_debates_are_held_by_functions(tmp_path: Path):
    def speak(messages: Sequence[Message]) -> str:
        return "I see it this way."

    found = evenhand.debate(
        speak, referee=lambda prompt: '{"bias": 3}', bias="age", topics=1, rounds=1, out=tmp_path / "run"
    )

    assert sum(found.arms[0].statuses.values()) == 1
    assert specs(tmp_path / "run")[0]["referee"].endswith("lambda")


def test_a_paper_is_made_with_a_function(tmp_path: Path):
    def kind(messages: Sequence[Message]) -> str:
        return "B" if "B)" in messages[-1].content else "a kind text"

    made = evenhand.paper("stardtox", models=[kind], limit=1, completions=1, builtin=True, out=tmp_path)

    assert "kind" in made.page.title and len(made.rows()) > 50


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (3, "A model is a spec such as 'openai/NAME', a Model, a function or a dict, not int"),
        ({"base": None}, "not NoneType"),
        ([FunctionModel(lambda *_: "A"), FunctionModel(lambda *_: "B")], "Two models have the spec fake/function"),
    ],
)
def test_what_is_no_model_is_refused_in_one_sentence(model: Any, said: str, tmp_path: Path):
    with pytest.raises(UsageError, match=said):
        evenhand.audit(model, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_guard_refuses_a_role_that_it_does_not_have():
    with pytest.raises(UsageError, match="does not use teacher"):
        evenhand.guard({"base": "fake/A", "teacher": "fake/B"})
