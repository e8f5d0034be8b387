"""Every kind of page in a real browser, wide and narrow: nothing sticks out, is empty, or hides something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_judges
import sample_paper
import sample_study

from evenhand import api
from evenhand.annotate.judges import judges_page
from evenhand.methods.framing import FramedAttention
from evenhand.models.hf.attention import Attention
from evenhand.papers.base import Grid, PaperCell, PaperColumn, PaperPage, PaperRow, PaperTable
from evenhand.papers.page import paper_page
from evenhand.runs.parts import Settings
from evenhand.show.attention import attention_page
from evenhand.show.certificates import reliability_page
from evenhand.show.report import write_report
from evenhand.studies.results import Estimate
from support.browser import FAINT, set_size, unfold

pytestmark = pytest.mark.slow
"""Sixteen pages in up to two widths and schemes each."""

Opener = Callable[..., Any]

MODEL, OTHER, FAILING = (f"call/support.varied:{name}" for name in ("answer", "another", "failing"))
RUNS: dict[str, dict[str, Any]] = {
    "audit": {"methods": ["default"], "limit": 22},
    "other": {"models": [OTHER], "methods": ["default"], "limit": 33},
    "methods": {"methods": ["default", "fair_prompt", "cot", "stardtox", "mabrf"], "limit": 22},
    "one sample": {"methods": ["default"], "limit": 1},
    "all failed": {"models": [FAILING], "methods": ["default"], "limit": 3},
    "toxicity": {
        "benchmark": "realtoxicity_builtin",
        "benchmark_options": {"completions": 2},
        "methods": ["default", "stardtox"],
        "limit": 6,
    },
    "squad": {"benchmark": "squad_builtin", "methods": ["default", "closed_book"], "limit": 12},
    "malibu": {"benchmark": "malibu", "methods": ["judge", "panel:judges=2,rounds=1"], "limit": 6},
    "debate": {"benchmark": "debates", "benchmark_options": {"bias": "age"}, "methods": ["debate"], "limit": 2},
    "framing": {"benchmark": "framing", "methods": ["framing"], "limit": 12},
}
KINDS = [*RUNS, "two runs", "study", "paper", "attention", "judges", "reliability"]
WITH_VERDICT = [kind for kind in KINDS if kind not in ("paper", "attention", "judges", "reliability")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {kind: folder / f"{kind}.html" for kind in KINDS}
    for kind, plan in RUNS.items():
        api.run({"benchmark": "bbq_builtin", "models": [MODEL], **plan}, folder / kind, Settings(cache=None))
        api.write_report(api.compare(folder / kind), [folder / kind], made[kind])
    both = [folder / "audit", folder / "other"]
    api.write_report(api.compare(*both), both, made["two runs"])
    write_report(sample_study.study(), sample_study.samples(20), made["study"])
    paper_page(sample_paper.page()).write(made["paper"])
    attention = Attention(("<s>", "You", " wrote", " this", "."), ((0.6, 0.1, 0.1, 0.1, 0.1),))
    framed = [FramedAttention(name, attention, {"Who wrote it": "You wrote"}) for name in ("own", "other")]
    attention_page("Where a model looks", "Two framings.", framed, layers=True).write(made["attention"])
    judges_page(sample_judges.people()).write(made["judges"])
    reliability_page(sample_judges.reliability()).write(made["reliability"])
    return made


EVERY_KIND = pytest.mark.parametrize("kind", KINDS, scope="module")
"""The scope groups the tests by page, so that one after the other finds it open."""


@pytest.fixture
def unfolded(open_page: Opener, chromium: Any, pages: dict[str, Path], kind: str) -> Callable[[int], Any]:
    """Shows a page at a width, with all that folds opened; it is loaded only if it is not there already."""

    def show(width: int = 1400) -> Any:
        if chromium.current_url != pages[kind].as_uri():
            open_page(pages[kind], width)
        set_size(chromium, width)
        unfold(chromium)  # also if it was there: another test, or the change of the width, may have folded it
        return chromium

    return show


@pytest.mark.parametrize("width", [390, 1400])
@EVERY_KIND
def test_nothing_sticks_out_and_numbers_stay_on_one_line(unfolded: Opener, kind: str, width: int) -> None:
    page = unfolded(width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script(STICKING_OUT) == []
    assert page.execute_script(BROKEN_NUMBERS) == []


@EVERY_KIND
def test_no_table_needs_to_scroll_on_a_wide_screen(unfolded: Opener, kind: str) -> None:
    page = unfolded(1400)
    assert page.execute_script(SCROLLING_TABLES) == []


def test_a_table_of_many_columns_and_long_hints_is_not_cut(open_page: Opener, tmp_path: Path) -> None:
    """As MALIBU's ten identities and chi-square tests, and RLDF's words beside six scores."""
    tables: list[PaperTable] = []
    for many, hint, found, digits in (
        (7, "comparable: 60 to 160", Estimate("", "", -61.2, -66.3, -56.1, 100), 1),
        (11, "", Estimate("", "", 5.25, -1.17, 10.02, 200), 2),
        (15, "", Estimate("", "", 0.1234, None, None, 2_200), 4),
    ):
        columns = [PaperColumn(str(place), "christian", hint) for place in range(many)]
        rows = [PaperRow("call/some.long.module:function", "panel, evenhand's settings", [PaperCell(found)] * many)]
        theirs = [PaperRow("atheist", "", [PaperCell(None, -0.25)] * many, ours=False)] if many == 11 else []
        grids = [Grid("ours", columns, rows, digits=digits), Grid("theirs", columns, theirs, full=1.0)]
        tables.append(PaperTable(f"t{many}", f"Table {many}", "All.", grids))
    file = tmp_path / "wide.html"
    paper_page(PaperPage("Title", "Source", "", tables, [], [])).write(file)

    page = open_page(file, 1300)
    unfold(page)

    assert page.execute_script(SCROLLING_TABLES) == []


@pytest.mark.parametrize("width", [390, 1400])
@EVERY_KIND
def test_no_label_of_a_chart_hides_a_mark(unfolded: Opener, kind: str, width: int) -> None:
    assert unfolded(width).execute_script(HIDDEN_MARKS) == []


@EVERY_KIND
def test_every_heading_has_something_under_it_and_a_link(unfolded: Opener, kind: str) -> None:
    page = unfolded()
    assert page.execute_script(EMPTY_PARTS) == []
    links = page.execute_script("return [...document.querySelectorAll('nav a')].map((a) => a.hash.slice(1))")
    assert links == page.execute_script("return [...document.querySelectorAll('main > section')].map((s) => s.id)")


@pytest.mark.parametrize("kind", WITH_VERDICT)
def test_a_phone_shows_the_answer_first(open_page: Opener, pages: dict[str, Path], kind: str) -> None:
    page = open_page(pages[kind], 390, 844)
    assert 0 < page.execute_script(END_OF_ANSWER) <= 700
    assert page.execute_script("return document.querySelectorAll('.fold[open]').length") == 0


def test_a_phone_opens_the_section_that_is_asked_for(open_page: Opener, pages: dict[str, Path]) -> None:
    page = open_page(pages["methods"], 390, 844)
    page.find_element("css selector", "#cost summary").click()
    assert page.find_element("css selector", "#cost table").is_displayed()
    page.execute_script("document.querySelector('nav a[href=\"#groups\"]').click()")
    assert page.find_element("css selector", "#groups .plot").is_displayed()


def test_a_paper_without_a_verdict_opens_its_first_section_on_a_phone(
    open_page: Opener, pages: dict[str, Path]
) -> None:
    page = open_page(pages["paper"], 390, 844)
    opened = page.execute_script("return [...document.querySelectorAll('.fold')].map((fold) => fold.open)")
    assert opened == [True] + [False] * (len(opened) - 1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@EVERY_KIND
def test_words_stand_out_from_what_is_behind_them(unfolded: Opener, kind: str, scheme: str) -> None:
    page = unfolded()
    page.execute_script(f"document.documentElement.dataset.theme = '{scheme}'")
    assert page.execute_script(FAINT) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_of_tiny_groups_are_hollow_and_without_an_interval(
    open_page: Opener, pages: dict[str, Path], scheme: str
) -> None:
    page = open_page(pages["audit"])
    page.execute_script(f"document.documentElement.dataset.theme = '{scheme}'")
    lanes = page.execute_script(LANES)
    assert {n >= 5 for n, *_ in lanes} == {True, False}
    for n, filled, whisker in lanes:
        assert (filled, whisker) == ((True, True) if n >= 5 else (False, False))


def test_an_audit_by_a_judge_that_sees_nothing_finds_no_gaps(open_page: Opener, pages: dict[str, Path]) -> None:
    page = open_page(pages["malibu"])
    large = [cell.text.split("\n")[0] for cell in page.find_elements("css selector", ".main .headline")]
    assert large == ["–", "–"]
    assert "the judge does not see it" in page.find_element("css selector", "body").text


# Elements that leave the window, apart from those in a box that scrolls.
STICKING_OUT = """
const scrolls = (e) => e && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
return [...document.querySelectorAll("main *")].filter((e) => {
  const { left, right, width } = e.getBoundingClientRect();
  return width && (left < -1 || right > innerWidth + 1) && !scrolls(e.parentElement);
}).map((e) => e.tagName + "." + e.getAttribute("class") + ": " + e.textContent.slice(0, 30)).slice(0, 5)
"""
BROKEN_NUMBERS = """
return [...document.querySelectorAll(".value, .limits, .n, .published")].filter((e) => {
  const range = document.createRange();
  range.selectNodeContents(e);
  return e.checkVisibility() && new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1;
}).map((e) => e.textContent).slice(0, 5)
"""
SCROLLING_TABLES = """
return [...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.getAttribute("aria-label") + " " + e.scrollWidth + " > " + e.clientWidth)
"""
HIDDEN_MARKS = """
const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
return [...document.querySelectorAll("main svg")].flatMap((svg) => {
  const marks = [...svg.querySelectorAll("use")].map((e) => e.getBoundingClientRect());
  return [...svg.querySelectorAll("text")].filter((e) => {
    const label = e.getBoundingClientRect();
    return marks.some((mark) => meet(mark, label));
  });
}).map((e) => e.textContent)
"""
EMPTY_PARTS = """
const heading = (e) => /^H[1-6]$/.test(e.tagName);
const bare = [...document.querySelectorAll("main h2, main h3")].filter((e) => {
  const head = e.parentElement.tagName === "SUMMARY" ? e.parentElement : e;
  const next = head.nextElementSibling;
  return !next || (heading(next) && next.tagName <= e.tagName) || !(next.innerText.trim() || next.querySelector("svg"));
});
const told = [...document.querySelectorAll("main .nothing")].filter((e) => !e.closest("#samples, noscript"));
return [...bare, ...told].map((e) => e.textContent);
"""
# The bottom of the first verdict's first sentence.
END_OF_ANSWER = """
const range = document.createRange();
range.selectNodeContents(document.querySelector(".verdicts p").firstChild);
return range.getBoundingClientRect().bottom + scrollY;
"""
LANES = """
const lanes = [...document.querySelectorAll("#groups [data-panel='0'] .lane")].filter((e) => e.querySelector("use"));
return lanes.map((e) => [
  Number(/n = ([0-9]+)/.exec(e.querySelector("title").textContent)[1]),
  getComputedStyle(e.querySelector("use")).fill !== getComputedStyle(document.body).backgroundColor,
  e.querySelector(".whisker") !== null,
])
"""
