"""The study of small stored runs whose outcome is known beforehand: what it says, and what it does not say."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.base import Metric, ratio
from evenhand.core.errors import PlanError
from evenhand.core.types import Completion, Message, Params, TokenLogprob
from evenhand.models.budget import Limits
from evenhand.models.fake import Reply
from evenhand.runs.store import Store
from evenhand.studies.export import table_rows
from evenhand.studies.results import ArmResult, Effect, Estimate, StudyResult
from evenhand.studies.study import study
from evenhand.studies.tally import ALL, Tally, estimate
from support.runs import Workshop
from support.stardtox import plain
from support.toy import CHOICES, OTHER, STEREOTYPED, UNKNOWN, Toy, letter_for, number_of, toy_sample

SIZE = 240
TOY: dict[str, Any] = {"benchmark_options": {"size": SIZE, "clusters": 40}}
BOTH: dict[str, Any] = {"methods": ["default", "fair_prompt"], **TOY}

Choice = Callable[[int], str]
"""Number of an ambiguous case → the option that is chosen."""


def answering(plain: Choice, fair: Choice | None = None) -> Callable[[Sequence[Message], Params], Reply]:
    """Right where the text tells; `plain` where it does not, or `fair` under the fairness instruction."""

    def answer(messages: Sequence[Message], _params: Params) -> Reply:
        number = number_of(messages)
        choose = fair if fair is not None and messages[0].role == "system" else plain
        option = choose(number) if number % 2 == 0 else CHOICES[toy_sample(number).target]
        return letter_for(messages, option) if option in CHOICES else option

    return answer


def by_stereotype(_number: int) -> str:
    return STEREOTYPED


def mostly_unknown(number: int) -> str:
    """Unknown in four of five cases; in the others each of the two men as often as the other."""
    return UNKNOWN if number % 10 else (STEREOTYPED if number % 20 else OTHER)


def unknown(_number: int) -> str:
    return UNKNOWN


def headline(result: StudyResult, group: str = "all") -> Effect:
    return next(each for each in result.effects if each.metric == "bias_ambig" and each.group == group)


def value(arm: ArmResult, metric: str) -> float | None:
    estimate = arm.estimate(metric)
    assert estimate is not None
    return estimate.value


@pytest.fixture
def studied(workshop: Workshop) -> Callable[..., Any]:
    """`await studied(plain, fair)` runs `default` and `fair_prompt` and studies them."""

    async def run(plain: Choice, fair: Choice, **options: Any) -> StudyResult:
        workshop.model(answering(plain, fair))
        await workshop.run(**BOTH)
        return study([workshop.directory / "run"], **options)

    return run


async def test_a_method_that_removes_bias_is_found_to(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, mostly_unknown)

    effect = headline(result)
    assert [value(arm, "bias_ambig") for arm in result.arms] == [pytest.approx(100), pytest.approx(0)]
    assert (effect.before, effect.after, effect.direction, effect.n) == ("1.1", "1.2", "fell", SIZE // 2)
    assert effect.difference == pytest.approx(-100)
    assert effect.high is not None
    assert effect.high < 0
    assert effect.p_adjusted is not None
    assert effect.p_value is not None
    assert effect.p_value <= effect.p_adjusted < 0.01
    assert result.verdicts[0].startswith(
        "Better: fair_prompt gives 0 more answers with the stereotype than against it, per 100 questions whose text "
        "does not tell the answer; default 100 more. "
        "Bias, ambiguous 100.0 → 0.0: difference of the distances from zero −100.0 ["
    )
    assert f"n = {SIZE // 2}" in result.verdicts[0]


async def test_a_method_that_does_nothing_is_not_found_to_do_anything(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, by_stereotype)

    effect = headline(result)
    assert (effect.difference, effect.direction) == (0, "undecided")
    assert result.verdicts[0].startswith("Cannot tell: fair_prompt may be anything from ")
    assert " points better than default in “Bias, ambiguous”. n = 120." in result.verdicts[0]


async def test_a_method_that_makes_it_worse_is_found_to(studied: Callable[..., Any]):
    result: StudyResult = await studied(mostly_unknown, by_stereotype)

    assert headline(result).direction == "rose"
    assert [finding.sentence for finding in result.findings[:2]] == [
        "Worse: fair_prompt gives 100 more answers with the stereotype than against it, per 100 questions whose text "
        "does not tell the answer; default 0 more.",
        "Worse: fair_prompt guesses in 100 % of the cases where the text does not say; default 20 %.",
    ]


async def test_turning_the_stereotype_around_is_no_improvement(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, lambda _number: OTHER)

    assert [value(arm, "bias_ambig") for arm in result.arms] == [pytest.approx(100), pytest.approx(-100)]
    assert (headline(result).difference, headline(result).direction) == (pytest.approx(0), "undecided")


async def test_arms_are_compared_by_swapping_whole_templates(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, mostly_unknown)

    effect = next(each for each in result.effects if each.metric == "accuracy_ambig" and each.group == "all")
    assert (effect.test, effect.difference, effect.direction) == ("cluster permutation", pytest.approx(80), "rose")
    assert headline(result).test == "cluster permutation"


async def test_only_samples_that_both_graded_are_compared(studied: Callable[..., Any]):
    def half_silent(number: int) -> str:
        return "Hard to say." if number < SIZE // 2 else mostly_unknown(number)

    result: StudyResult = await studied(by_stereotype, half_silent)

    assert headline(result).n == SIZE // 4
    assert [arm.statuses for arm in result.arms] == [
        {"graded": SIZE},
        {"graded": SIZE - SIZE // 4, "unscored": SIZE // 4},
    ]
    assert value(result.arms[1], "coverage") == pytest.approx(75)
    assert any("60 of 240 samples have no grade" in caveat for caveat in result.caveats)


async def test_an_arm_alone_is_described(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run(**TOY)

    result = study([workshop.directory / "run"])

    assert result.effects == []
    assert [finding.sentence for finding in result.findings] == [
        "Found: stub/one gives 100 more answers with the stereotype than against it, per 100 questions whose text does "
        "not tell the answer.",
        "Found: stub/one guesses in 100 % of the cases where the text does not say.",
    ]
    assert f", 100.0], n = {SIZE // 2})." in result.verdicts[0]


async def test_a_bias_that_may_be_zero_is_said_to_be(workshop: Workshop):
    workshop.model(answering(lambda number: STEREOTYPED if number % 4 else OTHER))
    await workshop.run(**TOY)

    result = study([workshop.directory / "run"])

    assert [finding.sentence for finding in result.findings] == [
        "Found: stub/one guesses in 100 % of the cases where the text does not say.",
        "Cannot tell: stub/one: no difference is to be seen in “Bias, ambiguous”; it may be anything from −43.3 to "
        "+43.3.",
    ]


async def test_few_samples_are_counted(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run(limit=6, **TOY)

    result = study([workshop.directory / "run"])

    assert any("guesses in 3 of 3 of the cases" in verdict for verdict in result.verdicts)
    assert ["3 of 3 " in warning for warning in result.warnings if "above chance" in warning] == []


async def test_a_bias_that_is_undefined_is_never_zero(workshop: Workshop):
    workshop.model(answering(unknown))
    await workshop.run(**TOY)

    result = study([workshop.directory / "run"])

    estimate = result.arms[0].estimate("bias_ambig")
    assert estimate is not None
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (None, None, None, SIZE // 2)
    assert f"Bias, ambiguous is undefined (n = {SIZE // 2}): no answer names a person." in result.verdicts[0]


async def test_a_verdict_goes_on_with_the_next_metric_where_the_bias_is_undefined(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, unknown)

    effect = headline(result)
    assert (effect.difference, effect.low, effect.high, effect.p_adjusted) == (None, None, None, None)
    assert effect.direction == "undecided"
    assert [value(arm, "bias_ambig") for arm in result.arms] == [pytest.approx(100), None]
    assert [finding.sentence for finding in result.findings] == [
        "Better: fair_prompt guesses in 0 % of the cases where the text does not say; default 100 %.",
        "Cannot tell: fair_prompt and default cannot be compared in “Bias, ambiguous”: for fair_prompt it is undefined "
        "(no answer names a person).",
    ]


async def test_the_next_metric_may_say_that_a_method_is_worse(studied: Callable[..., Any]):
    result: StudyResult = await studied(unknown, by_stereotype)

    assert result.verdicts[0].startswith(
        "Worse: fair_prompt guesses in 100 % of the cases where the text does not say; default 0 %."
    )
    assert "“Bias, ambiguous”: for default it is undefined" in result.verdicts[1]


async def test_a_run_without_a_single_grade_has_no_numbers(workshop: Workshop):
    workshop.model(lambda *_: Completion("", refusal="No."))
    await workshop.run(**BOTH)

    result = study([workshop.directory / "run"])

    assert [arm.estimate("bias_ambig") for arm in result.arms] == [None, None]
    assert [value(arm, "coverage") for arm in result.arms] == [0, 0]
    assert [value(arm, "refusals") for arm in result.arms] == [100, 100]
    assert [verdict.partition(":")[0] for verdict in result.verdicts] == ["Cannot tell"]


async def test_runs_in_different_directories_are_compared_like_arms_of_one(workshop: Workshop):
    workshop.model(answering(by_stereotype, mostly_unknown))
    await workshop.run("together", **BOTH)
    await workshop.run("before", methods=["default"], **TOY)
    await workshop.run("after", methods=["fair_prompt"], **TOY)

    together = headline(study([workshop.directory / "together"]))
    apart = study([workshop.directory / "before", workshop.directory / "after"])

    assert [arm.label for arm in apart.arms] == ["default", "fair_prompt"]
    assert (headline(apart).difference, headline(apart).low, headline(apart).p_value, headline(apart).n) == (
        together.difference,
        together.low,
        together.p_value,
        together.n,
    )


async def test_runs_of_different_size_are_compared_on_what_they_share(workshop: Workshop):
    workshop.model(answering(by_stereotype, mostly_unknown))
    await workshop.run("before", methods=["default"], **TOY)
    await workshop.run("after", methods=["fair_prompt"], limit=80, **TOY)

    result = study([workshop.directory / "before", workshop.directory / "after"])

    assert headline(result).n == 40
    assert [arm.statuses for arm in result.arms] == [{"graded": 80}, {"graded": 80}]
    assert [arm.pending for arm in result.arms] == [0, 0]
    assert [arm.usage["base"].calls for arm in result.arms] == [80, 80]
    assert result.warnings[0] == (
        "The runs have 240 and 80 samples. All numbers are of the 80 samples that they share."
    )


async def test_runs_without_a_common_sample_are_not_compared(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run("one", benchmark_options={"size": 10})
    await workshop.run("two", benchmark_options={"size": 10, "first": 10})

    with pytest.raises(PlanError, match="have no sample in common"):
        study([workshop.directory / "one", workshop.directory / "two"])


async def test_runs_of_two_models_are_named_by_model(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    workshop.model(answering(mostly_unknown), "two")
    await workshop.run("a", models=["stub/one"], **TOY)
    await workshop.run("b", models=["stub/two"], **TOY)

    result = study([workshop.directory / "a", workshop.directory / "b"], baseline="stub/two")

    assert [arm.label for arm in result.arms] == ["stub/one", "stub/two"]
    assert headline(result).before == "2.1"


async def test_runs_on_different_data_are_not_compared(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run("one", **TOY)
    await workshop.run("two", benchmark_options={"size": SIZE, "version": "2"})

    with pytest.raises(PlanError, match=r"The sample toy/0000 differs between these runs; they used different data"):
        study([workshop.directory / "one", workshop.directory / "two"])


async def test_runs_of_different_benchmarks_are_not_compared(workshop: Workshop):
    workshop.model(lambda *_: "A")
    await workshop.run("one", **TOY)
    await workshop.run("two", benchmark="bbq_builtin", limit=4)

    with pytest.raises(PlanError, match="different benchmarks, whose numbers cannot be compared"):
        study([workshop.directory / "one", workshop.directory / "two"])


async def test_directories_of_the_same_name_are_told_apart(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run("a/run", **TOY)
    await workshop.run("b/run", **TOY)

    result = study([workshop.directory / "a" / "run", workshop.directory / "b" / "run"])

    assert [arm.label for arm in result.arms] == [str(workshop.directory / name / "run") for name in ("a", "b")]
    assert len(result.provenance) == 2


@pytest.mark.parametrize("baseline", ["fair_prompt", "1.2"])
async def test_the_baseline_can_be_chosen(studied: Callable[..., Any], baseline: str):
    result: StudyResult = await studied(by_stereotype, mostly_unknown, baseline=baseline)

    assert (headline(result).before, headline(result).after) == ("1.2", "1.1")
    assert headline(result).direction == "rose"


async def test_an_unknown_baseline_is_answered_with_those_there_are(studied: Callable[..., Any]):
    with pytest.raises(PlanError, match=r"no arm 'cot'\. Choose one of default, fair_prompt"):
        await studied(by_stereotype, mostly_unknown, baseline="cot")


async def test_the_other_correction_can_be_chosen(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, mostly_unknown, correction="bh")

    assert {effect.correction for effect in result.effects} == {"bh"}


@pytest.mark.parametrize(("orders", "said"), [(1, "advice."), (2, "averaged over 2 orders.")])
async def test_a_liking_for_one_letter_is_warned_about(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, orders: int, said: str
):
    """Without the advice to ask in several orders, where that was done."""
    monkeypatch.setattr(Toy, "position_advice", "advice")
    chances = (("A", -0.1), ("B", -3.0), ("C", -4.0))
    workshop.model(lambda *_: Completion("A", logprobs=(TokenLogprob("A", -0.1, chances),)), features=("logprobs",))
    await workshop.run(orders=orders, **TOY)

    result = study([workshop.directory / "run"])

    position = result.arms[0].position
    assert position is not None
    assert position.counts == (SIZE, 0, 0)
    assert any("position bias" in each and each.endswith(f", {said}") for each in result.warnings)


async def test_a_right_model_has_no_warning(workshop: Workshop):
    workshop.model(answering(unknown))
    await workshop.run(**TOY)

    assert study([workshop.directory / "run"]).warnings == []


async def test_a_stopped_run_says_what_is_missing(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run(settings={"budget": Limits(calls=100)}, **TOY)

    result = study([workshop.directory / "run"])

    assert result.arms[0].pending == SIZE - 100
    assert any("140 samples were not run. Resume the run" in caveat for caveat in result.caveats)


async def test_money_of_unknown_price_is_not_shown_as_nothing(workshop: Workshop):
    workshop.model(answering(by_stereotype)).free = False  # pyright: ignore
    await workshop.run(**TOY)

    result = study([workshop.directory / "run"])

    assert result.arms[0].usage["base"].cost is None


async def test_reasons_for_missing_grades_are_listed(workshop: Workshop):
    def answer(messages: Sequence[Message], params: Params) -> Reply:
        return "Hm." if number_of(messages) < 10 else answering(unknown)(messages, params)

    workshop.model(answer)
    await workshop.run(**TOY)

    reasons = study([workshop.directory / "run"]).arms[0].reasons

    assert reasons == [("unscored", "no option could be read from the text answer", 10)]


async def test_the_same_runs_give_the_same_study(workshop: Workshop):
    workshop.model(answering(by_stereotype, mostly_unknown))
    await workshop.run(**BOTH)

    directories = [workshop.directory / "run"]

    assert study(directories) == study(directories)


async def test_the_confusion_of_kinds_is_counted(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run(**TOY)

    assert study([workshop.directory / "run"]).arms[0].confusion == {
        "unknown": {"target": SIZE // 2},
        "target": {"target": SIZE // 4},
        "non_target": {"non_target": SIZE // 4},
    }


async def test_a_run_is_not_compared_with_itself(workshop: Workshop):
    workshop.model(answering(by_stereotype))
    await workshop.run(**TOY)

    with pytest.raises(PlanError, match="run is named twice; a run is not compared with itself"):
        study([workshop.directory / "run", workshop.directory / "." / "run"])


def test_a_directory_without_a_plan_is_told(tmp_path: Path):
    Store(tmp_path, create=True).close()

    with pytest.raises(PlanError, match="stopped before its plan was stored, or its file has lost it"):
        study([tmp_path])


def test_a_directory_without_a_run_is_told(tmp_path: Path):
    with pytest.raises(PlanError, match="holds no run"):
        study([tmp_path])


def percentage(*values: Sequence[float], scale: float = 100.0) -> Estimate:
    """The estimate of a mean over clusters, each with its own values."""
    metric = Metric("m", "M", lambda _record: None, ratio, scale=scale)
    tally = Tally([metric], "group")
    for number, cluster in enumerate(values):
        for each in cluster:
            tally.add_sums(("m", ALL), str(number), (each, 1.0))
    return estimate(metric, ALL, tally)


@pytest.mark.parametrize(("value", "low", "high"), [(0.0, 0, 27.75), (1.0, 72.25, 100)])
def test_clusters_that_all_agree_do_not_prove_that_there_are_no_others(value: float, low: float, high: float):
    found = percentage(*[[value] * 25] * 10)

    assert found.value == 100 * value
    assert (found.low, found.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))
    assert found.n == 250


def test_clusters_that_differ_are_resampled():
    found = percentage([0.0, 1.0], [0.0, 0.0], [1.0, 1.0])

    assert found.value == 50
    assert found.low is not None
    assert found.low < 50


def test_a_count_that_is_always_one_is_no_share():
    found = percentage(*[[1.0]] * 10, scale=1.0)

    assert (found.value, found.low, found.high) == (1.0, None, None)


def test_percentages_are_told_as_such(studied_texts: StudyResult):
    shown = {metric.name: metric.share for metric in studied_texts.metrics}

    assert [shown[name] for name in ("toxicity", "refusal", "any_toxic", "length")] == [True, True, True, False]


def test_iterations_are_counted(studied_texts: StudyResult):
    steps = studied_texts.by_iteration

    assert [(step.arm, step.iteration, step.reached, step.of) for step in steps] == [("1.2", 0, 4, 4), ("1.2", 1, 4, 4)]
    first, second = (step.estimate("toxicity") for step in steps)
    assert first is not None
    assert second is not None
    assert first.value is not None
    assert second.value is not None
    assert first.value > second.value
    assert second.value == value(studied_texts.arms[1], "toxicity")


@pytest.fixture
async def studied_texts(workshop: Workshop) -> StudyResult:
    """`default` and StarDTox on texts that are rude at first; nobody rates their quality."""
    workshop.model(plain)
    await workshop.run(
        benchmark="realtoxicity_builtin",
        benchmark_options={"completions": 2},
        limit=2,
        scorers=["builtin_b"],
        methods=["default", {"name": "stardtox", "options": {"performance": False}}],
    )
    return study([workshop.directory / "run"])


async def test_a_scorer_with_a_model_can_be_named_without_it(workshop: Workshop):
    workshop.model(answering(unknown))
    await workshop.run(**TOY)
    run = workshop.directory / "run"
    about = {"attributes": ["toxicity"], "planned": False}
    with contextlib.closing(Store(run)) as store:
        store.put(scorers={"judge:a/x@1": {**about, "spec": "judge:a/x"}})
        assert study([run], scorers=["judge"]).scorers == ("judge:a/x@1",)
        store.put(scorers={name: {**about, "spec": name[:-2]} for name in ("judge:a/x@1", "judge:b/y@1")})

    with pytest.raises(PlanError, match=r"'judge' may be judge:a/x@1 or judge:b/y@1; name one of them\."):
        study([run], scorers=["judge"])


async def test_few_clusters_are_named_wherever_an_interval_is_shown(workshop: Workshop):
    workshop.model(answering(by_stereotype, mostly_unknown))
    await workshop.run(methods=["default", "fair_prompt"], benchmark_options={"size": 60, "clusters": 5})

    result = study([workshop.directory / "run"])

    estimate = result.arms[0].estimate("accuracy_ambig")
    assert estimate is not None
    assert (estimate.clusters, estimate.few_clusters) == (5, True)
    assert "n = 30, only 5 clusters" in result.verdicts[0]
    assert any("Few clusters" in each and "from 5 templates" in each for each in result.warnings)
    assert {row["few_clusters"] for row in table_rows(result, [], "metrics")} == {True}


async def test_enough_clusters_give_no_warning(studied: Callable[..., Any]):
    result: StudyResult = await studied(by_stereotype, mostly_unknown)

    assert headline(result).clusters == 20
    assert not any("clusters" in each for each in [*result.warnings, *result.verdicts])
