"""Sections that a benchmark adds to its reports, by name."""

from dataclasses import replace

import pytest
import sample_study
from rich.console import Console

from evenhand.core.errors import UnknownNameError
from evenhand.show.markup import Html, tag
from evenhand.show.report import render_report
from evenhand.show.sections import SECTIONS, Section, add_section
from evenhand.show.sections.overview import arm_table
from evenhand.show.terminal import print_table
from evenhand.show.view import View
from evenhand.studies.results import StudyResult


def shown(view: View) -> Html:
    return tag("section", f"{len(view.arms)} <arms>", id="own")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registry, which the test may add to."""
    SECTIONS.names()
    monkeypatch.setattr(SECTIONS, "_things", dict(SECTIONS._things))  # pyright: ignore[reportPrivateUsage]


def study(*sections: str) -> StudyResult:
    return replace(sample_study.study(), report_sections=sections)


@pytest.mark.usefixtures("registry")
def test_a_section_of_ones_own_follows_the_one_that_it_names():
    add_section(Section("own", "My own", shown, after="groups"))

    page = render_report(study("own"), [])

    assert "3 &lt;arms&gt;" in page
    assert page.index('<section id="groups"') < page.index('<section id="own"') < page.index('<section id="changes"')
    assert page.index('href="#groups"') < page.index('href="#own"') < page.index('href="#changes"')


@pytest.mark.usefixtures("registry")
def test_a_section_is_there_only_where_its_benchmark_asks_and_has_something_to_show():
    add_section(Section("own", "My own", shown))
    add_section(Section("empty", "Empty", lambda _: None))

    assert 'id="own"' not in render_report(study(), [])
    assert "#empty" not in render_report(study("empty"), [])


@pytest.mark.usefixtures("registry")
def test_the_terminals_table_shows_the_metrics_of_a_section():
    add_section(Section("own", "My own", shown, metrics=("unknown",)))
    console = Console(width=200)
    with console.capture() as captured:
        print_table(arm_table(study("own")), console)

    assert "Answers “unknown”" in captured.get()


def test_a_wrong_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="reasoning"):
        render_report(study("reasonning"), [])
    with pytest.raises(UnknownNameError, match="changes"):
        Section("own", "My own", shown, after="change")  # pyright: ignore[reportArgumentType]


def test_the_facts_of_each_run_are_folded():
    runs = {"bbq": {"seed": 7}, "squad": {"seed": 8}}

    page = render_report(replace(study(), provenance=runs), [])

    assert [f"<details><summary>{name}</summary>" in page for name in runs] == [True, True]
