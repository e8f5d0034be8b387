"""The report in a real browser: what a reader clicks works, and nothing a model wrote runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sample_study
from hostile import LITERAL, LONG, poisoned

from evenhand.show.report import write_report
from support.browser import choose, every, one, unfold, wait_until, words_in

Opener = Callable[..., Any]

# Where the page ends up wider than the window, apart from the boxes that are meant to scroll.
_STICKING_OUT = """
return [...document.querySelectorAll("main *")].filter((e) =>
  !e.closest(".scroll, nav ul, pre, svg") && e.getBoundingClientRect().right > innerWidth + 1
).map((e) => e.tagName + "." + e.className).slice(0, 5)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(sample_study.study(), sample_study.samples(300), path)
    return path


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = poisoned(sample_study.samples(4))
    samples[0] = replace(samples[0], context=samples[0].context + LONG)
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    write_report(poisoned(sample_study.study()), samples, path)
    return path


def items(driver: Any) -> list[Any]:
    return every(driver, "#sample-list button")


def test_the_navigation_leads_to_its_sections_and_marks_the_place(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    for name in ("changes", "samples", "made", "overview"):
        link = one(page, f'nav a[href="#{name}"]')
        link.click()
        assert page.current_url.endswith(f"#{name}")
        wait_until(page, lambda link=link: link.get_attribute("aria-current") == "true")
    assert len(every(page, "nav a[aria-current]")) == 1


def test_choosing_a_metric_changes_the_chart(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    choose(page, "#metric-picker", "Accuracy, disambiguated,\u00a0%")
    shown = [p for p in every(page, "[data-panel]") if p.is_displayed()]
    assert len(shown) == 1
    assert "Accuracy, disambiguated" in shown[0].text
    assert "higher is better" in shown[0].text


def test_the_numbers_unfold_as_a_table(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    one(page, "[data-panel='0'] summary").click()
    table = one(page, "[data-panel='0'] table")
    assert table.is_displayed()
    assert "Sexual orientation fair_prompt – – – 60" in table.text.replace("\n", " ")


def test_filters_narrow_the_list(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    count = one(page, "#sample-count")
    assert count.text == "300 samples"
    choose(page, "#sample-group", "Religion")
    assert count.text == "75 of 300 samples"
    assert all("Religion" in item.text for item in items(page))
    choose(page, "#sample-status", "refused")
    assert all("refused" in item.text for item in items(page))
    refused = len(items(page))
    choose(page, "#sample-arm", "cot")
    assert 0 < len(items(page)) < refused < 75


def test_arms_that_disagree_can_be_singled_out(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    one(page, "#sample-disagree").click()
    assert 0 < int(one(page, "#sample-count").text.split()[0]) < 300
    assert all(len(item.find_elements("css selector", ".item-arms > span")) > 1 for item in items(page)[:20])


def test_searching_finds_words_ids_and_traces(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    search = one(page, "#sample-search")
    search.send_keys("AGE-0008")
    assert [item.text.split("\n")[0] for item in items(page)] == ["Age"]
    search.clear()
    search.send_keys("one seems likelier")
    assert 0 < len(items(page)) < 300
    search.clear()
    search.send_keys("no such words anywhere\n")
    assert "No sample matches" in one(page, "#sample-detail").text
    assert items(page) == []


def test_a_sample_opens_with_everything_that_was_said(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    one(page, "#sample-search").send_keys("SES-0002")
    items(page)[0].click()
    detail = one(page, "#sample-detail")
    assert "SES-0002" in detail.text
    assert "Who failed the first exam?" in detail.text
    assert "✓ target" in one(page, ".target-choice").text
    assert len(every(page, ".outcome")) == 3
    folds = every(page, ".outcome")[2].find_elements("css selector", "summary")
    next(fold for fold in folds if fold.text.startswith("Trace")).click()
    story = every(page, ".outcome")[2].text
    assert "Two names" not in story
    folds = every(page, ".outcome")[2].find_elements("css selector", "summary")
    [thoughts] = [fold for fold in folds if fold.text == "Thoughts before the answer"]
    thoughts.click()
    assert "Two names, and no word on who it was." in every(page, ".outcome")[2].text
    for told in (
        "1. thinker",
        "2. reader",
        "cot/read @ 5d41402abc4b",
        "token",
        "Same as in the previous turn: 1 message",
    ):
        assert told in story


def test_the_list_answers_to_arrow_keys(open_page: Opener, report: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = open_page(report)
    items(page)[0].send_keys(Keys.ARROW_DOWN)
    assert page.switch_to.active_element == items(page)[1]
    assert one(page, "#sample-detail h3").text == "Age-0004"
    page.switch_to.active_element.send_keys(Keys.END)
    assert page.switch_to.active_element == items(page)[-1]


def test_a_long_list_grows_on_request(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    assert len(items(page)) == 100
    one(page, "#sample-more").click()
    assert len(items(page)) == 200


def test_the_theme_toggle_switches_colours_and_back(open_page: Opener, report: Path) -> None:
    page = open_page(report)

    def paper() -> str:
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    light = paper()
    one(page, "#theme").click()
    dark = paper()
    assert dark != light
    one(page, "#theme").click()
    assert paper() == light


@pytest.mark.parametrize("width", [320, 390, 768, 1100, 1400])
def test_no_width_makes_the_page_scroll_sideways(open_page: Opener, report: Path, width: int) -> None:
    page = open_page(report, width)
    unfold(page)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script(_STICKING_OUT) == []


def test_tables_fit_a_laptop_without_scrolling(open_page: Opener, tmp_path: Path) -> None:
    study = sample_study.study()
    several = replace(study, guardrails=tuple(each.name for each in study.metrics if each.name != study.headline))
    write_report(several, sample_study.samples(4), tmp_path / "report.html")
    page = open_page(tmp_path / "report.html", 1300)
    wide = "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert page.execute_script(wide) == 0
    assert "842,319 tokens" in one(page, "table.main").text


def test_every_control_has_a_name(open_page: Opener, report: Path) -> None:
    page = open_page(report)
    for control in every(page, "button, select, input, [role=region], svg[role=img]"):
        if control.is_displayed():
            assert control.accessible_name, control.get_attribute("outerHTML")[:200]


def test_charts_and_tables_show_without_scripts(chromium_without_scripts: Any, report: Path) -> None:
    page = chromium_without_scripts
    page.get(report.as_uri())
    assert one(page, "svg.scatter").is_displayed()
    assert len([s for s in every(page, "#groups svg.strip[role=img]") if s.is_displayed()]) == 12
    assert one(page, "table.main").is_displayed()
    assert not one(page, "#metric-picker").is_displayed()
    assert not one(page, ".browser").is_displayed()
    assert "The sample browser needs JavaScript" in one(page, "#samples").text


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_text_is_shown_and_never_runs(open_page: Opener, hostile_report: Path, width: int) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    page = open_page(hostile_report, width)
    unfold(page)
    for item in items(page):
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", item)
        item.click()
        unfold(page)
        detail = words_in(page, "#sample-detail")
        assert detail.count(LITERAL) >= 10
    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert.text
    assert every(page, "img, iframe, [onload], [onerror], main script") == []
    assert len(every(page, "script")) == 2
    assert LITERAL in one(page, "h1").text
    assert words_in(page, "main").count(LITERAL) > 100
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_report_without_samples_or_arms_opens_quietly(open_page: Opener, tmp_path: Path) -> None:
    study = sample_study.study()
    for i, odd in enumerate([replace(study, arms=[], effects=[]), replace(study, arms=study.arms[:1], effects=[])]):
        path = tmp_path / f"{i}.html"
        write_report(odd, [], path)
        page = open_page(path)
        assert every(page, "#samples") == []


def test_links_of_the_narrow_navigation_do_not_overlap(open_page: Opener, report: Path) -> None:
    page = open_page(report, 390)
    boxes = [link.rect for link in every(page, "nav a")]
    for left, right in pairwise(boxes):
        assert left["x"] + left["width"] <= right["x"] + 1
