"""Runs of a method whose reasoning is rated: what is stored, what a study counts, and what plain runs do not see."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.show.report import render_report
from evenhand.show.sections.overview import arm_table
from evenhand.show.terminal import print_table
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study
from support.rated import never_free, rated, unrated
from support.runs import Workshop

BOTH: dict[str, Any] = {"methods": ["unrated", "rated"], "benchmark_options": {"size": 24}}


@pytest.fixture
async def result(workshop: Workshop) -> StudyResult:
    return await studied(workshop, **BOTH)


async def studied(workshop: Workshop, folder: str = "run", **plan: Any) -> StudyResult:
    workshop.model(lambda _messages, _params: "A")
    workshop.method("rated", rated)
    workshop.method("unrated", unrated)
    workshop.method("never_free", never_free)
    await workshop.run(folder, **plan)
    return study([workshop.directory / folder])


def value(result: StudyResult, arm: int, metric: str) -> float | None:
    found = result.arms[arm].estimate(metric)
    return None if found is None else found.value


def printed(result: StudyResult) -> str:
    from rich.console import Console

    console = Console(width=160)
    with console.capture() as captured:
        print_table(arm_table(result), console)
    return captured.get()


async def test_ratings_before_and_after_are_counted(result: StudyResult):
    # Six of 24 begin with a bias of 1, the others with 7; all end with 1.
    assert value(result, 1, "reasoning_bias_before") == pytest.approx(5.5)
    assert value(result, 1, "reasoning_bias") == pytest.approx(1)
    assert value(result, 1, "reasoning_bias_change") == pytest.approx(-4.5)
    assert value(result, 1, "relevancy_change_ambig") == pytest.approx(1.5)
    assert value(result, 1, "debiased") == value(result, 1, "joint_success") == pytest.approx(100)
    assert value(result, 1, "first_accuracy_ambig") == 0
    assert value(result, 1, "first_bias_ambig") == pytest.approx(100)


async def test_an_arm_without_ratings_has_none(result: StudyResult):
    assert value(result, 0, "reasoning_bias") is None
    assert value(result, 0, "first_accuracy_ambig") is None


async def test_ratings_are_followed_from_iteration_to_iteration(result: StudyResult):
    found = [step.estimate("reasoning_bias") for step in result.by_iteration]

    assert [each.value if each else None for each in found] == [pytest.approx(x) for x in (5.5, 3.25, 1.0)]


async def test_ratings_add_nothing_to_what_is_tested(workshop: Workshop, result: StudyResult):
    plain = await studied(workshop, "plain", **{**BOTH, "methods": ["default", "unrated"]})

    assert {each.metric for each in result.effects} == {each.metric for each in plain.effects}


async def test_a_plain_study_has_no_metric_of_reasoning(workshop: Workshop):
    result = await studied(workshop, **{**BOTH, "methods": ["unrated"]})

    names = {metric.name for metric in result.metrics}
    assert {"bias_ambig", "accuracy_aligned", "coverage"} <= names
    assert not [name for name in names if name.startswith(("first", "reasoning", "relevancy", "joint", "legacy"))]
    assert "Reasoning" not in printed(result)
    assert 'id="reasoning"' not in render_report(result, [])


async def test_the_terminal_table_shows_the_ratings(result: StudyResult):
    row = next(line for line in printed(result).splitlines() if "Reasoning bias before" in line)

    assert "–" in row
    assert "5.50" in row


async def test_the_report_has_a_section_on_reasoning(result: StudyResult):
    page = render_report(result, [])

    section = page[page.index('<section id="reasoning"') :].partition("</section>")[0]
    assert "5.50" in section
    assert "disambiguated" in section
    assert "unrated" not in section


async def test_the_report_shows_the_end_where_it_is_not_the_last_revision(result: StudyResult):
    page = render_report(result, [])

    section = page[page.index('<section id="iterations"') :].partition("</section>")[0]
    assert [words in section for words in ("revision 2", "revision 3", "the end")] == [True, False, True]


async def test_the_legacy_formula_comes_with_a_warning(workshop: Workshop):
    options = {"categories": "Age", "legacy": True}

    result = await studied(workshop, benchmark="bbq_builtin", benchmark_options=options, limit=8, methods=["rated"])

    assert value(result, 0, "legacy_bias") == pytest.approx(0)
    assert value(result, 0, "legacy_bias_before_disambig") is not None
    assert "Legacy bias first" in render_report(result, [])
    assert any("not the BBQ score" in warning for warning in result.warnings)


async def test_iterations_as_arms_have_ratings_too(workshop: Workshop, result: StudyResult):
    arms = study([Path(workshop.directory / "run")], iterations=True).arms

    found = [arm.estimate("reasoning_bias") for arm in arms if arm.iteration == 1]
    assert [each.value if each else None for each in found] == [pytest.approx(3.25)]


async def test_a_judge_that_calls_every_reasoning_biased_is_warned_about(workshop: Workshop, result: StudyResult):
    severe = await studied(workshop, "severe", methods=["never_free"], benchmark_options={"size": 24})

    told = "never_free: the judge rated no reasoning as free of bias"
    assert any(warning.startswith(told) for warning in severe.warnings)
    assert not any("free of bias" in warning for warning in result.warnings)
