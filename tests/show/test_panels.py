"""The sections on judges: what was found stands there, is escaped, and can be reached on any screen."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import sample_study
from hostile import ATTACK, LITERAL
from rich.console import Console

from evenhand.panels.findings import PanelAudit
from evenhand.show.markup import escape
from evenhand.show.report import render_report, write_report
from evenhand.show.sections.panels import audit_sentences, audit_tables, full_colour, shade
from evenhand.show.terminal import print_table
from evenhand.studies.results import Correction, StudyResult
from support.audits import BEHIND, CATEGORIES, FOUND, JUDGES, audit, interval, turned
from support.browser import words_in

SECTIONS = ("judges", "discussion", "scores", "coverage")

SECTIONS = ("judges", "discussion", "scores", "coverage")


def study(*audits: PanelAudit) -> StudyResult:
    """A judge, a panel and a panel with an instruction, with all that an ordinary study has."""
    plain = sample_study.study()
    names = ("judge", "panel", "fair_panel")
    given = audits or (audit(0.2, rounds=0), audit(0.3), audit(-0.2, seed=1))
    arms = [replace(arm, label=name, audit=each) for arm, name, each in zip(plain.arms, names, given, strict=False)]
    turns = [Correction(arms[1].id, arms[2].id, [turned().sentence])] if len(arms) > 2 else []
    return replace(plain, benchmark="malibu", arms=arms, corrections=turns, report_sections=SECTIONS)


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(study(), [])


def part(page: str, section: str) -> str:
    """The text of one section, without its tags."""
    found = re.search(rf'<section id="{section}".*?</section>', page, re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", " ", found.group()).split())


def test_an_audit_has_its_sections_and_they_are_in_the_navigation(page: str) -> None:
    for section in SECTIONS:
        assert f'href="#{section}"' in page and f'id="{section}"' in page


def test_a_study_without_an_audit_has_none_of_them() -> None:
    page = render_report(sample_study.study(), [])

    assert not any(f'href="#{section}"' in page for section in SECTIONS)


def test_a_judge_alone_has_no_discussion() -> None:
    page = render_report(study(audit(rounds=0)), [])

    assert 'href="#judges"' in page
    assert 'href="#discussion"' not in page


def test_findings_and_over_correction_are_told_in_sentences(page: str) -> None:
    text = part(page, "judges")

    assert FOUND in text
    assert "panel → fair_panel" in text and turned().sentence in text


def test_gaps_that_were_found_are_marked_with_the_arms_that_have_them(page: str) -> None:
    text = part(page, "judges")

    assert text.count("found: judge, panel, fair_panel") == 3
    assert "white − asian" in text and "found: judge, panel, fair_panel white" not in text


def test_the_matrix_has_a_cell_for_every_two_identities_and_marks_the_tested_ones(page: str) -> None:
    matrix = re.findall(r'<table class="heat differences">.*?</table>', page, re.DOTALL)[0]

    assert len(re.findall(r'<td class="(?:more|less|level)', matrix)) == 100
    assert matrix.count("tested") == 2 * 13
    assert matrix.count("✓") == 2


def test_the_discussion_shows_rounds_and_who_moved_whom(page: str) -> None:
    text = part(page, "discussion")

    assert "after round 1" in text and "after round 2" in text
    assert "amplified" in text
    assert all(judge in text for judge in JUDGES)


def test_coverage_names_judges_and_what_is_missing(page: str) -> None:
    text = part(page, "coverage")

    assert "99.7 %" in text and "40.0 %" in text
    assert JUDGES[0] in text


def test_colours_follow_sign_and_size() -> None:
    assert [shade(value, 0.5) for value in (0.5, 0.11, 0.01, -0.3, -2.0, None)] == [
        "more-5",
        "more-1",
        "level",
        "less-3",
        "less-5",
        "level",
    ]
    assert full_colour([interval(0.01), interval(-0.4)]) == 0.4
    assert full_colour([]) == 0.1


def test_tables_can_be_reached_by_keyboard_and_carry_no_style_of_their_own(page: str) -> None:
    ours = page[page.index('<section id="judges"') : page.index('<section id="groups"')]

    assert ours.count('class="scroll" tabindex="0" role="region"') == ours.count("<table") > 10
    assert not re.search(r'<[^>]+ style="', ours)


def test_hostile_names_stay_text() -> None:
    bad = f"x{ATTACK}"
    hostile = replace(
        audit(),
        categories={bad: (bad, "male"), **CATEGORIES},
        judges=(bad, *JUDGES[1:]),
        sentences=(bad,),
        gaps=tuple(replace(gap, x=bad, category=bad) for gap in audit().gaps),
    )

    page = render_report(study(hostile), [])

    assert LITERAL not in page
    assert escape(LITERAL) in page


def test_nothing_judged_is_a_page_all_the_same() -> None:
    found = audit(rounds=0)
    nothing = replace(
        found, means=(), distributions=(), matrix=(), gaps=(), secondary=(), wins=(), chi_square=(), sentences=()
    )

    page = render_report(study(nothing), [])

    assert 'id="judges"' in page
    assert "Win rates" not in page


# --- the terminal ---


def printed(shown: StudyResult) -> str:
    out = StringIO()
    console = Console(width=160, file=out)
    for table in audit_tables(shown):
        print_table(table, console)
    return out.getvalue()


def test_the_terminal_shows_gaps_found_discussion_and_coverage() -> None:
    text = printed(study())

    lines = [line for line in text.splitlines() if "female − male" in line]
    assert len(lines) == 9
    assert "Effect of the discussion" in text and "amplified" in text
    assert "7,400" in text


def test_the_table_of_the_discussion_names_each_column_once() -> None:
    [table] = [each for each in audit_tables(study()) if each.title.startswith("Effect of the discussion")]

    titles = [column.title for column in table.columns]
    assert titles.count("Result") == 1 and len(titles) == len(table.rows[0])


def test_an_arm_without_findings_says_so() -> None:
    assert re.search(r"judge +none", printed(study(audit(0.0, rounds=0))))


def test_sentences_beyond_the_verdicts_name_their_arm() -> None:
    said = list(audit_sentences(study()))

    assert said == [f"panel → fair_panel: {turned().sentence}"]
    more = replace(audit(), sentences=("One.", "Two.", "Three."))
    assert list(audit_sentences(study(more))) == ["judge: Three."]


def test_no_audit_prints_nothing() -> None:
    assert list(audit_tables(sample_study.study())) == []


# --- in a browser ---


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_never_scrolls_sideways(open_page, tmp_path: Path, width: int) -> None:
    path = tmp_path / "report.html"
    write_report(study(), [], path)
    driver = open_page(path, width)

    driver.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")

    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert BEHIND in words_in(driver, "#scores")
