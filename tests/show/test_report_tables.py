"""The tables in the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_study
from hostile import poisoned
from rich.console import Console

from evenhand.show.report import render_report
from evenhand.show.sections.comparison import effect_table
from evenhand.show.sections.overview import arm_table
from evenhand.show.table import Table
from evenhand.show.terminal import print_table
from evenhand.studies.conclusions import conclusions, headline_of
from evenhand.studies.results import StudyResult


def printed(table: Table, width: int = 100) -> str:
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        print_table(table, console)
    return capture.get()


def test_the_arm_table_fits_a_hundred_columns_with_intervals_unbroken() -> None:
    text = printed(arm_table(sample_study.study()))
    assert max(map(len, text.splitlines())) <= 100
    for shown in ("fair_prompt", "[15.2, 22.0]", "n = 660", "1,320", "842,319", "$0.05", "$0.00"):
        assert shown in text


def test_an_unknown_price_is_a_dash() -> None:
    row = next(line for line in printed(arm_table(sample_study.study())).splitlines() if "Money" in line)
    assert row.split()[-1] == "–"


def test_undefined_values_keep_their_n() -> None:
    study = sample_study.study()
    arm = study.arms[0]
    blank = [replace(e, value=None, low=None, high=None) if e.group == "all" else e for e in arm.estimates]
    text = printed(arm_table(replace(study, arms=[replace(arm, estimates=blank)])))
    assert "–" in text
    assert "n = 660" in text
    assert "[–" not in text


def test_the_effect_table_says_what_moved() -> None:
    text = printed(effect_table(sample_study.study()))
    assert "Paired differences from default" in text
    assert "−11.7 [−15.1, −8.2]" in text
    assert "<0.001" in text
    assert "? cannot tell" in text
    assert max(map(len, text.splitlines())) <= 100


def test_two_baselines_are_both_named() -> None:
    study = sample_study.study()
    other = replace(study.effects[0], before="cot-0")
    assert "fair_prompt − cot" in printed(effect_table(replace(study, effects=[*study.effects, other])), 140)


@pytest.mark.parametrize(
    ("value", "written"), [(3.14159, "3.14"), (12345.6, "12,345.6"), (0.01234, "0.012"), (-41.86, "−41.9")]
)
def test_a_number_reads_the_same_in_sentence_table_and_page(value: float, written: str) -> None:
    study = sample_study.study()
    metrics = [replace(metric, share=False) for metric in study.metrics]
    arms = [
        replace(arm, estimates=[replace(e, value=value, low=value, high=value, successes=None) for e in arm.estimates])
        for arm in study.arms[:1]
    ]
    one = replace(study, metrics=metrics, arms=arms, effects=[])

    for text in (str(conclusions(one)[0]), headline_of(one), printed(arm_table(one)), render_report(one, [])):
        assert f"{written} " in text or f"{written}<" in text
        assert f"[{written}, {written}]" in text


def test_the_line_of_a_run_begins_with_its_verdict_and_names_an_arm_without_a_value() -> None:
    study = sample_study.study()
    first = replace(
        study.arms[0], estimates=[replace(e, value=None, low=None, high=None) for e in study.arms[0].estimates]
    )

    line = headline_of(replace(study, arms=[first, *study.arms[1:]]))

    assert line.startswith("Worse: fair_prompt is wrong in 21 % of the cases")
    assert f"{first.label} undefined; {study.arms[1].label} " in line


def test_text_is_neither_markup_nor_an_escape_sequence() -> None:
    study: StudyResult = poisoned(replace(sample_study.study(), benchmark="[bold red]title[/]"))
    text = printed(arm_table(study)) + printed(effect_table(study))
    assert "[bold" in text
    assert "\x1b" not in text
    assert "\x00" not in text


def test_a_study_without_arms_or_effects_still_prints() -> None:
    study = replace(sample_study.study(), arms=[], effects=[], guardrails=())
    assert "Calls" in printed(arm_table(study))
    assert "Paired differences" in printed(effect_table(study))
