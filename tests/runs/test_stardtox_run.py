"""StarDTox in whole runs on texts: what is stored, what is repeated after an interruption, and bad input."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evenhand.core.errors import EndpointError, PlanError, UnknownNameError, UsageError
from evenhand.core.types import Generation, Message, Params, Unscored
from evenhand.models.budget import Limits
from evenhand.models.fake import FunctionModel
from evenhand.runs.dry import forecast
from evenhand.runs.plan import make_plan
from evenhand.runs.scores import rescore
from evenhand.runs.store import FINAL, Store
from evenhand.scorers.base import SCORERS, Scorer, Scores
from evenhand.studies.study import study
from support.runs import Workshop
from support.stardtox import GOOD, KIND, RUDE, plain

PLAN: dict[str, Any] = {
    "benchmark": "realtoxicity_builtin",
    "benchmark_options": {"completions": 3},
    "limit": 2,
    "methods": ["default", {"name": "stardtox", "options": {"candidates": 1}}],
    "scorers": ["builtin_b"],
}
SAMPLES = 6
CALLS = SAMPLES * (1 + 2 + 2)
"""One for `default`; two texts and two judgements for StarDTox."""
FOREIGN = "они пошли домой вместе под дождём"


def scores(run: Path, scorer: str) -> Counter[tuple[int, int, str]]:
    """How many (arm, iteration, status) there are."""
    with closing(Store(run)) as store:
        return Counter(store.select("SELECT arm, iteration, status FROM scores WHERE scorer = ?", scorer))


async def test_the_answers_after_each_iteration_are_scored_and_stored(workshop: Workshop):
    model = workshop.model(plain)

    progress = await workshop.run(**PLAN)

    assert progress.statuses == {"graded": 2 * SAMPLES}
    assert len(model.requests) == CALLS
    assert scores(workshop.directory / "run", "builtin_b@2.4") == {
        (1, FINAL, "graded"): SAMPLES,
        (2, FINAL, "graded"): SAMPLES,
        (2, 0, "graded"): SAMPLES,
        (2, 1, "graded"): SAMPLES,
    }
    assert {row["stop"] for row in workshop.rows() if row["arm"] == "stardtox"} == {"accepted"}


async def test_a_study_shows_how_it_stood_after_each_iteration(workshop: Workshop):
    workshop.model(plain)
    await workshop.run(**PLAN)

    result = study([workshop.directory / "run"], iterations=True)

    assert [arm.label for arm in result.arms] == ["default", "stardtox · iteration 1", "stardtox"]
    before, after, final = (arm.estimate("toxicity") for arm in result.arms)
    assert before and after and final
    assert before.value > 50 > after.value == final.value


async def test_quality_is_rated_by_another_model_than_the_judge_that_steers(workshop: Workshop):
    base, judge = workshop.model(plain), workshop.model(lambda *_: GOOD, "judge")
    models = [{"base": "stub/one", "judge": "stub/judge"}]

    await workshop.run(**{**PLAN, "scorers": None, "models": models})

    # Two texts of StarDTox each go to the judge; each text once after each prompt to the base model, for the metric.
    assert len(judge.requests) == SAMPLES * 2
    assert len(base.requests) == SAMPLES * (1 + 2) + 2 * 2
    quality = study([workshop.directory / "run"]).arms[0].estimate("quality")
    assert quality
    assert quality.value == pytest.approx(95)


async def test_the_response_cache_serves_the_first_answer(workshop: Workshop, tmp_path: Path):
    model = workshop.model(plain)

    await workshop.run(**PLAN, settings={"cache": tmp_path / "cache.sqlite", "concurrency": 1})

    # Equal texts after equal prompts are judged once, and the first answer is that of `default`.
    assert len(model.requests) < CALLS
    assert sum("Continue the text below" in messages[-1].content for messages, _ in model.requests) == SAMPLES


@pytest.mark.parametrize("stop", range(3, CALLS, 5))
async def test_an_interrupted_run_repeats_no_call_of_generator_or_judge(workshop: Workshop, stop: int):
    gate = asyncio.Event()

    class Slow(FunctionModel):
        async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
            if len(self.requests) >= stop:
                gate.set()
                await asyncio.Event().wait()
            return await super().generate(messages, params)

    slow = Slow(plain, spec="stub/one")
    workshop.plug("one", slow)
    task = asyncio.create_task(workshop.run(**PLAN))
    await gate.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    model = workshop.model(plain)
    await workshop.run(**PLAN, settings={"resume": True})
    workshop.model(plain)
    await workshop.run("whole", **PLAN)

    assert len(slow.requests) + len(model.requests) == CALLS
    assert workshop.exported() == workshop.exported("whole")


@pytest.mark.parametrize("calls", [1, 8, 17])
async def test_a_budget_stops_it_cleanly_and_the_rest_is_done_later(workshop: Workshop, calls: int):
    model = workshop.model(plain)

    stopped = await workshop.run(**PLAN, settings={"budget": Limits(calls=calls), "concurrency": 3})
    spent = len(model.requests)
    completed = await workshop.run(**PLAN, settings={"resume": True})

    assert stopped.stopped is not None
    assert spent == calls
    assert (completed.stopped, completed.statuses) == (None, {"graded": 2 * SAMPLES})
    assert len(model.requests) == CALLS


async def test_the_dry_run_counts_every_iteration_and_is_an_upper_bound(workshop: Workshop):
    model = workshop.model(plain)
    fields = {**PLAN, "models": ["fake/one"]}

    plain_arm, stardtox = await forecast(make_plan(fields), {})

    await workshop.run(**PLAN)
    assert plain_arm.usage.calls == SAMPLES
    assert stardtox.usage.calls >= len(model.requests) - SAMPLES
    # Three texts; each judgement that cannot be read is asked for once more.
    assert SAMPLES * 6 <= stardtox.usage.calls <= SAMPLES * 9


FEEDBACK = {"name": "stardtox", "options": {"scorer": "frail", "performance": False}}


class Frail(Scorer):
    """Fails as a test says."""

    name: ClassVar[str] = "frail"
    version = "1"
    attributes = ("toxicity",)
    fault: ClassVar[Any] = None

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        if isinstance(self.fault, Exception):
            raise self.fault
        return [Unscored(self.fault)] * len(texts) if self.fault else [{"toxicity": 0.01}] * len(texts)


@pytest.fixture
def frail(monkeypatch: pytest.MonkeyPatch) -> Any:
    def fail(fault: Any) -> None:
        monkeypatch.setattr(Frail, "fault", fault)

    monkeypatch.setitem(SCORERS._things, "frail", Frail)
    return fail


@pytest.mark.parametrize("fault", ["asleep", EndpointError("asleep")], ids=repr)
async def test_a_scorer_that_fails_leaves_the_answers_and_is_named(workshop: Workshop, frail: Any, fault: Any):
    workshop.model(plain)
    frail(fault)

    progress = await workshop.run(**{**PLAN, "scorers": ["frail"]})

    result = study([workshop.directory / "run"])
    assert progress.statuses == {"graded": 2 * SAMPLES}
    assert any("frail@1" in warning and "asleep" in warning for warning in result.warnings)
    assert all(arm.estimate("toxicity") is None for arm in result.arms)
    frail(None)
    await rescore(workshop.directory / "run", ["frail"])
    assert not any("frail" in warning for warning in study([workshop.directory / "run"]).warnings)


@pytest.mark.parametrize("fields", [{"scorers": ["frail"]}, {"methods": [FEEDBACK]}], ids=str)
async def test_a_scorer_that_cannot_work_ends_the_run_before_it_costs_much(
    workshop: Workshop, frail: Any, fields: dict[str, Any]
):
    model = workshop.model(plain)
    frail(EndpointError("wrong key", permanent=True))
    plan = {**PLAN, "limit": 20, **fields}

    with pytest.raises(UsageError, match="The scorer frail does not work: wrong key"):
        await workshop.run(**plan, settings={"concurrency": 1})
    asked = len(model.requests)
    frail(None)
    await workshop.run(**plan, settings={"resume": True})

    assert asked < 20
    assert {row["status"] for row in workshop.rows()} == {"graded"}
    whole = workshop.model(plain)
    await workshop.run("whole", **plan)
    assert len(model.requests) == len(whole.requests)


async def test_a_feedback_scorer_that_fails_ends_the_loop_and_not_the_run(workshop: Workshop, frail: Any):
    workshop.model(plain)
    frail("asleep")

    await workshop.run(**{**PLAN, "methods": [FEEDBACK]})

    assert {(row["stop"], row["answer"]) for row in workshop.rows()} == {("no_evaluation", RUDE)}


async def test_a_run_goes_on_after_its_answers_were_rescored(workshop: Workshop):
    model = workshop.model(plain)
    run = workshop.directory / "run"
    await workshop.run(**PLAN, settings={"budget": Limits(calls=12), "concurrency": 2})
    [first] = await rescore(run, ["builtin"])

    completed = await workshop.run(**PLAN, settings={"resume": True})
    unfinished = study([run], scorers=["builtin"]).warnings
    [second] = await rescore(run, ["builtin"])

    assert completed.done == 2 * SAMPLES
    assert len(model.requests) == CALLS
    assert (first.scored > 0, first.scored + second.scored) == (True, 4 * SAMPLES)
    assert any("not scored yet" in warning for warning in unfinished)
    assert not any("not scored yet" in warning for warning in study([run], scorers=["builtin"]).warnings)
    assert scores(run, "builtin_b@2.4").total() == scores(run, "builtin@2.4").total() == 4 * SAMPLES


async def test_texts_in_another_script_are_told_and_not_counted_as_harmless(workshop: Workshop):
    workshop.model(lambda *_: FOREIGN)
    methods = [{"name": "stardtox", "options": {"performance": False}}]

    await workshop.run(**{**PLAN, "methods": methods})

    [arm] = study([workshop.directory / "run"]).arms
    coverage = arm.estimate("coverage")
    assert {row["stop"] for row in workshop.rows()} == {"no_evaluation"}
    assert arm.estimate("toxicity") is None
    assert coverage
    assert coverage.value == 0


async def test_enormous_texts_are_stored_and_scored(workshop: Workshop):
    huge = " ".join([KIND] * 10_000)
    workshop.model(lambda messages, _params: GOOD if "fluen" in messages[-1].content else huge)

    progress = await workshop.run(**{**PLAN, "limit": 1, "benchmark_options": {"completions": 1}})

    assert progress.statuses == {"graded": 2}
    assert {row["answer"] for row in workshop.rows()} == {huge}


def with_scorer(spec: str) -> dict[str, Any]:
    return {"methods": [{"name": "stardtox", "options": {"scorer": spec}}]}


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"scorers": ["bultin"]}, UnknownNameError, "did you mean builtin"),
    (with_scorer("bultin"), UnknownNameError, "did you mean builtin"),
    ({"scorers": ["builtin", "builtin_b"]}, PlanError, "builtin and builtin_b both score toxicity"),
    ({"benchmark": "bbq_builtin", "benchmark_options": {}}, PlanError, "the answers of this benchmark are choices"),
]


@pytest.mark.parametrize(("fields", "error", "words"), WRONG, ids=str)
async def test_bad_input_is_told_before_any_call(
    workshop: Workshop, fields: dict[str, Any], error: type[Exception], words: str
):
    model = workshop.model(plain)

    with pytest.raises(error, match=words):
        await workshop.run(**{**PLAN, **fields})

    assert model.requests == []
    assert not (workshop.directory / "run").exists()
