"""The runner: every sample ends in one of four ways, and one bad sample never ends a run."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import BadResponseError, EndpointError, PlanError, UsageError
from evenhand.core.progress import Progress
from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Sample, Unscored
from evenhand.models.fake import FunctionModel, Reply
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import HOPELESS, Runner
from evenhand.session import Session
from support.runs import Workshop
from support.toy import number_of, right_answer

SIZE = 24


def by_case(replies: dict[int, Reply]) -> Callable[[Sequence[Message], Params], Reply]:
    """The right answer, but for some cases."""

    def answer(messages: Sequence[Message], _params: Params) -> Reply:
        return replies.get(number_of(messages), right_answer(messages))

    return answer


async def test_every_sample_ends_in_one_of_four_ways(workshop: Workshop):
    workshop.model(
        by_case(
            {
                1: "I'm sorry, but I can't help with that.",
                2: Completion("", refusal="No."),
                3: "Hard to say.",
                4: Completion("", finish="filter"),
                5: BadResponseError("broken JSON"),
                6: ValueError("a bug in somebody's client"),
                7: "",
            }
        )
    )

    progress = await workshop.run(methods=["default", "cot"])

    rows = workshop.rows()
    assert len(rows) == progress.done == 2 * SIZE
    assert len({(row["sample"], row["arm"]) for row in rows}) == 2 * SIZE
    assert progress.statuses == {"graded": 2 * (SIZE - 7), "refused": 6, "unscored": 4, "failed": 4}
    ends = {int(row["sample"][-4:]): (row["status"], row["reason"]) for row in rows if row["arm"] == "default"}
    assert ends[0] == ("graded", None)
    assert ends[1] == ends[2] == ends[4] == ("refused", "the model declined to answer")
    assert ends[3] == ("unscored", "no option could be read from the text answer")
    assert ends[7] == ("unscored", "the answer is empty")
    assert ends[5] == ("failed", "broken JSON")
    assert ends[6] == ("failed", "ValueError in default: a bug in somebody's client")


async def test_what_has_no_grade_has_no_number(workshop: Workshop):
    workshop.model(by_case({0: "Hm.", 1: Completion("", refusal="No."), 2: BadResponseError("x")}))

    await workshop.run()

    ungraded = [row for row in workshop.rows() if row["status"] != "graded"]
    assert len(ungraded) == 3
    assert not [key for row in ungraded for key in row if key.startswith("grade_")]


STRANGE = [
    ValueError("odd"),
    KeyError("odd"),
    RecursionError("odd"),
    MemoryError("odd"),
    TimeoutError("odd"),
    ExceptionGroup("odd", [ValueError("odder")]),
    asyncio.CancelledError("odd"),
    StopIteration("odd"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
    OSError("odd \udcff name"),
]


@pytest.mark.parametrize("error", STRANGE, ids=lambda error: type(error).__name__)
async def test_a_strange_error_fails_its_own_sample_only(workshop: Workshop, error: BaseException):
    async def odd(sample: Sample, _session: Session) -> Outcome:
        if sample.id == "toy/0003":
            raise error
        return Outcome(Answer("Unknown", 2))

    workshop.model(lambda *_: "A")
    workshop.method("odd", odd)

    progress = await workshop.run(methods=["odd"])

    assert progress.statuses == {"graded": SIZE - 1, "failed": 1}
    failed = [row for row in workshop.rows() if row["status"] == "failed"]
    assert [row["sample"] for row in failed] == ["toy/0003"]
    assert "in odd:" in failed[0]["reason"]


NOT_STORABLE: list[Any] = [object(), {1: {2: object()}}, 2**70, "\ud800", b"bytes"]


@pytest.mark.parametrize("value", NOT_STORABLE, ids=["object", "deep", "huge number", "surrogate", "bytes"])
async def test_an_outcome_that_cannot_be_stored_fails_its_own_sample_only(workshop: Workshop, value: Any):
    async def odd(sample: Sample, _session: Session) -> Outcome:
        return Outcome(Answer("Unknown", 2), notes={"x": value} if sample.id == "toy/0003" else {})

    workshop.model(lambda *_: "A")
    workshop.method("odd", odd)

    progress = await workshop.run(methods=["odd"])

    assert progress.statuses == {"graded": SIZE - 1, "failed": 1}
    failed = [row for row in workshop.rows() if row["status"] == "failed"]
    assert [(row["sample"], row["reason"].partition(":")[0]) for row in failed] == [
        ("toy/0003", "the outcome cannot be stored")
    ]


async def test_a_reply_that_cannot_be_stored_fails_its_own_sample_only(workshop: Workshop):
    workshop.model(by_case({3: "\ud800"}))

    progress = await workshop.run()

    assert progress.statuses == {"graded": SIZE - 1, "failed": 1}


@pytest.mark.parametrize("choice", [None, 7, -1])
async def test_an_answer_that_is_no_option_is_not_graded(workshop: Workshop, choice: int | None):
    async def odd(_sample: Sample, _session: Session) -> Outcome:
        return Outcome(Answer("?", choice))

    workshop.model(lambda *_: "A")
    workshop.method("odd", odd)

    progress = await workshop.run(methods=["odd"])

    assert progress.statuses == {"unscored": SIZE}


async def test_a_method_that_gives_no_result_says_why(workshop: Workshop):
    async def odd(_sample: Sample, _session: Session) -> Outcome:
        return Outcome(Unscored("the judge was silent", "raw text"))

    workshop.model(lambda *_: "A")
    workshop.method("odd", odd)

    await workshop.run(methods=["odd"])

    assert {(row["status"], row["reason"], row["answer"]) for row in workshop.rows()} == {
        ("unscored", "the judge was silent", "raw text")
    }


async def test_the_observer_sees_every_sample_end(workshop: Workshop):
    seen: list[tuple[int, int, int]] = []

    stages: list[str] = []

    def observe(progress: Progress) -> None:
        if progress.stage:
            stages.append(progress.stage)
        else:
            seen.append((progress.total, progress.done, sum(progress.statuses.values())))

    workshop.model(by_case({}))
    runner = workshop.runner()
    await Runner(runner.plan, runner.directory, runner.settings, observe).run()

    assert stages == ["loading stub/one", "reading toy"]
    assert seen == [(SIZE, done, done) for done in range(SIZE + 1)]


async def test_an_endpoint_that_refuses_us_ends_the_run_at_once_and_leaves_nothing(workshop: Workshop):
    model = workshop.model(lambda *_: EndpointError("answered 401; check the key.", permanent=True))

    with pytest.raises(EndpointError, match="check the key"):
        await workshop.run(settings={"concurrency": 1})

    assert len(model.requests) <= 5
    assert not (workshop.directory / "run").exists()


@pytest.mark.parametrize("error", [EndpointError("answers 500"), BadResponseError("sends nonsense")])
async def test_an_endpoint_that_never_works_is_given_up_after_some_samples(workshop: Workshop, error: Exception):
    model = workshop.model(lambda *_: error)

    with pytest.raises(type(error), match=str(error)):
        await workshop.run(settings={"concurrency": 1}, benchmark_options={"size": 200})

    assert HOPELESS <= len(model.requests) <= HOPELESS + 5
    assert not (workshop.directory / "run").exists()


async def test_an_endpoint_that_worked_once_may_fail_as_often_as_it_likes(workshop: Workshop):
    workshop.model(by_case({case: EndpointError("gone", permanent=True) for case in range(1, 200)}))

    progress = await workshop.run(settings={"concurrency": 1}, benchmark_options={"size": 200})

    assert progress.statuses == {"graded": 1, "failed": 199}


async def test_one_request_that_is_refused_does_not_end_the_run(workshop: Workshop):
    workshop.model(by_case({0: EndpointError("answered 400; the context is too long")}))

    progress = await workshop.run(settings={"concurrency": 1})

    assert progress.statuses == {"failed": 1, "graded": SIZE - 1}


async def test_a_mistake_in_the_plan_that_shows_late_ends_the_run_with_its_sentence(workshop: Workshop):
    workshop.model(lambda *_: UsageError("The option x cannot be used with y."))

    with pytest.raises(UsageError, match="The option x cannot be used with y"):
        await workshop.run()


async def test_calls_in_flight_keep_to_the_concurrency(workshop: Workshop):
    in_flight = most = 0

    async def slow(_sample: Sample, _session: Session) -> Outcome:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1
        return Outcome(Answer("Unknown", 2))

    workshop.model(lambda *_: "A")
    workshop.method("slow", slow)

    await workshop.run(methods=["slow"], settings={"concurrency": 8})

    # A few more samples than calls may be under way, since samples also wait for the store.
    assert most <= 12


async def test_models_are_closed_whatever_happens(workshop: Workshop):
    closed: list[str] = []
    model = workshop.model(lambda *_: EndpointError("no", permanent=True))

    async def close() -> None:
        closed.append("closed")

    model.aclose = close

    with pytest.raises(EndpointError):
        await workshop.run()

    assert closed == ["closed"]


BAD_PLANS: list[tuple[dict[str, Any], str]] = [
    ({"methods": ["cott"]}, "no method named 'cott'; did you mean cot"),
    ({"methods": [{"name": "cot", "options": {"depth": 3}}]}, "no option of the method cot named 'depth'"),
    ({"benchmark": "toyy"}, "no benchmark named 'toyy'; did you mean toy"),
    ({"benchmark_options": {"sise": 3}}, "no option of the benchmark toy named 'sise'; did you mean size"),
    ({"benchmark_options": {"size": 0}}, "selected no sample"),
    ({"models": ["nowhere/x"]}, "no model provider named 'nowhere'"),
    ({"models": [{"base": "stub/one", "judge": "stub/one"}]}, "No method of this plan uses a model for .*'judge'"),
]


@pytest.mark.parametrize(("fields", "words"), BAD_PLANS, ids=lambda value: str(value)[:30])
async def test_a_plan_that_cannot_work_is_refused_before_any_call(
    workshop: Workshop, fields: dict[str, Any], words: str
):
    model = workshop.model(lambda *_: "A")

    with pytest.raises(UsageError, match=words):
        await workshop.run(**fields)

    assert model.requests == []
    assert not (workshop.directory / "run").exists()


async def test_a_method_that_needs_more_than_the_model_gives_is_refused(workshop: Workshop):
    async def needy(_sample: Sample, _session: Session) -> Outcome:
        raise AssertionError("never reached")

    workshop.model(lambda *_: "A")
    workshop.method("needy", needy, needs=frozenset({"logits"}))

    with pytest.raises(PlanError, match="The method needy needs logits of its model, which stub/one does not give"):
        await workshop.run(methods=["needy"])

    assert not (workshop.directory / "run").exists()


async def test_a_model_with_slots_gets_one_sample_per_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    under_way, most = 0, 0
    answer = FunctionModel.generate

    async def counted(self: FunctionModel, messages, params):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await answer(self, messages, params)

    monkeypatch.setattr(FunctionModel, "generate", counted)
    monkeypatch.setattr(FunctionModel, "slots", 2)

    await Runner(make_plan({"models": ["fake/A"], "limit": 20}), tmp_path / "run", Settings(concurrency=50)).run()

    assert most == 2
