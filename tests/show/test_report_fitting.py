"""Tables in terminals of any width: numbers stay whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import sample_study
from rich.console import Console

from evenhand.show.report import render_report
from evenhand.show.sections.comparison import effect_table
from evenhand.show.sections.overview import arm_table
from evenhand.show.table import Column, Table, columns
from evenhand.show.terminal import print_table
from evenhand.studies.results import Estimate, StudyResult

LONG = "default · openai/an-organisation-with-a-long-name/some-model-70b-instruct-2026-03-01"


def printed(table: Table, width: int) -> str:
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        print_table(table, console)
    return capture.get()


def long_names() -> StudyResult:
    study = sample_study.study()
    return replace(study, arms=[replace(arm, label=f"{LONG}-{number}") for number, arm in enumerate(study.arms)])


def numbers(text: str) -> set[str]:
    return set(re.findall(r"−?\d[\d,]*\.\d+(?=[\],\s])", text))


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("study", [sample_study.study(), long_names()], ids=["short", "long"])
def test_no_number_is_cut(study: StudyResult, width: int) -> None:
    for make in (arm_table, effect_table):
        wide, narrow = printed(make(study), 400), printed(make(study), width)

        assert "…" not in narrow
        assert max(map(len, narrow.splitlines())) <= width
        assert numbers(narrow) == numbers(wide)


def test_long_names_are_numbered_and_listed_once() -> None:
    text = " ".join(printed(arm_table(long_names()), 120).split())

    assert text.count(f"#1 {LONG}-0") == 1
    assert text.count(f"{LONG}-0") == 1
    assert "Paired differences from #1" in printed(effect_table(long_names()), 100)


def test_columns_of_numbers_are_split_with_their_names() -> None:
    rows = [["Bias", "1.0 [0.5, 1.5]", "2.0 [1.5, 2.5]", "3.0 [2.5, 3.5]"]]
    table = Table("", columns("name", "first", "second", "third"), rows)

    lines = printed(table, 45).splitlines()

    rows = [line for line in lines if "Bias" in line]
    assert ["1.0 [0.5, 1.5]" in rows[0], "2.0 [1.5, 2.5]" in rows[0], "3.0 [2.5, 3.5]" in rows[1]] == [True] * 3


def test_a_table_with_text_becomes_a_list() -> None:
    names = [*columns("name", "difference"), Column("result")]
    table = Table("", names, [["fair_prompt", "+1.0 [−20.0, 21.0]", "undecided"]])

    text = printed(table, 40)

    assert re.search(r"difference +│? *\+1\.0 \[−20\.0, 21\.0\]", text)
    assert re.search(r"result +│? *undecided", text)


def test_few_samples_are_counted() -> None:
    study = sample_study.study()
    few = Estimate("accuracy_ambig", "all", 200 / 3, 20.8, 93.9, 3, successes=2)
    others = [each for each in study.arms[0].estimates if (each.metric, each.group) != ("accuracy_ambig", "all")]
    arms = [replace(study.arms[0], estimates=[few, *others]), *study.arms[1:]]

    text = printed(arm_table(replace(study, arms=arms)), 100)

    assert "2 of 3" in text
    assert "66.7" not in text


def test_few_clusters_are_named_beside_their_intervals():
    study = sample_study.study()
    arms = [
        replace(arm, estimates=[replace(e, clusters=5, few_clusters=True) for e in arm.estimates]) for arm in study.arms
    ]
    effects = [replace(effect, clusters=5, few_clusters=True) for effect in study.effects]
    few = replace(study, arms=arms, effects=effects)

    assert "only 5 clusters" in printed(arm_table(few), 160)
    assert "only 5 clusters" in printed(effect_table(few), 160)
    assert "only 5 clusters" in render_report(few, [])
    assert "only 5 clusters" not in render_report(study, [])
