"""A paper's page, tables and files: ours beside the published numbers, and nothing that runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample_paper
from hostile import LITERAL, poisoned
from rich.console import Console

from evenhand.papers.base import PaperPage
from evenhand.papers.page import paper_page, printed, write_csv_files
from evenhand.show.terminal import print_table
from support.browser import unfold, words_in

Opener = Callable[..., Any]


def hostile_page() -> PaperPage:
    """Every text attacks; only the names of sections and files are ours."""
    page = poisoned(sample_paper.page())
    return replace(
        page,
        tables=[replace(each, id="table1") for each in page.tables],
        figures=[
            replace(each, id=f"figure{number}", kind=kind)
            for number, (each, kind) in enumerate(zip(page.figures, ("stacked", "histogram"), strict=True), 1)
        ],
    )


def cells(html: str, method: str) -> list[str]:
    """What the first row of a method shows, cell by cell."""
    row = next(each for each in re.findall(r"<tr.*?</tr>", html) if f"<b>{method}</b>" in each)
    return [" ".join(re.sub(r"<.*?>", " ", each).split()) for each in re.findall(r"<td.*?</td>", row)]


def test_a_cell_shows_our_number_with_interval_and_n_and_the_papers() -> None:
    html = paper_page(sample_paper.page()).html()

    assert cells(html, "Default") == [
        "61.2 [56.2, 66.2] n = 100 paper 32.70",
        "−3.5 [−8.5, 1.5] n = 100 paper 58.07",
        "–",
        "",
    ]


def test_what_is_missing_is_never_a_number() -> None:
    html = paper_page(sample_paper.page()).html()

    assert cells(html, "Ours alone") == ["50.0 [45.0, 55.0] n = 100", "– n = 100", "–", ""]
    assert cells(html, "Theirs alone") == ["paper 9.30", "paper 84.65", "", ""]
    assert cells(html, "Neither") == ["", "", "", ""]
    assert "needs logits" in html


def test_a_reason_has_a_column_of_its_own() -> None:
    html = paper_page(sample_paper.page()).html()

    assert html.count("Can it be reproduced?</th>") == 2
    assert cells(html, "Doubtful") == ["paper 84.00", "", "", "No: it is a typo."]


def test_what_only_repeats_the_paper_is_in_sight_too() -> None:
    page = sample_paper.page()
    theirs = [replace(grid, rows=[row for row in grid.rows if not row.ours]) for grid in page.tables[0].grids]
    alone = replace(page, tables=[replace(page.tables[0], grids=theirs)])

    for each in (page, alone):
        html = paper_page(each).html()
        assert html.count('<h3 class="grid-name">XL</h3>') == 1
        assert "<summary>XL" not in html


def test_a_histogram_tells_its_bins_to_those_who_cannot_see_it() -> None:
    html = paper_page(sample_paper.page()).html()

    chart = next(each for each in re.findall(r"<svg.*?</svg>", html) if "histogram" in each)
    assert "moderate, with. 0 or less: 80.0 [75.0, 85.0], n = 100; +1 or more: 40.0" in chart
    assert "≤\u00a00" in chart
    heights = [float(height) for height in re.findall(r'<rect[^>]* height="([\d.]+)"', chart)]
    assert heights[0] == 2 * heights[1]


def test_the_page_needs_nothing_else() -> None:
    html = paper_page(sample_paper.page()).html()

    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "https://" not in html
    assert "default-src 'none'" in html.replace("&#x27;", "'")


def test_figures_without_runs_are_left_out() -> None:
    figures = [replace(figure, bars=[]) for figure in sample_paper.page().figures]
    page = replace(sample_paper.page(), figures=figures, process=None)

    html = paper_page(page).html()

    assert 'id="figure' not in html
    assert 'href="#figure' not in html
    assert 'id="cost"' not in html


def test_files_have_one_line_per_number(tmp_path: Path) -> None:
    written = write_csv_files(sample_paper.page(), tmp_path)

    assert [path.name for path in written] == ["table1.csv", "figure1.csv", "figure2.csv"]
    with written[0].open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == (2 * 5 + 1) * 3
    assert {line["reproducible"] for line in lines if line["method"] == "Doubtful"} == {"No: it is a typo."}
    first = lines[0]
    assert (first["data_set"], first["method"], first["metric"]) == ("moderate", "Default", "accuracy")
    assert [first[name] for name in ("value", "low", "high", "n", "published")] == [
        "61.25", "56.25", "66.25", "100", "32.7",
    ]  # fmt: skip


def test_the_terminal_shows_the_same_and_obeys_no_control() -> None:
    console = Console(width=120, record=True, force_terminal=False)
    for table in printed(hostile_page()):
        print_table(table, console)

    text = console.export_text()
    assert "paper 58.07" in text
    assert "\x1b" not in text
    assert "\x00" not in text


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_narrow_terminal_splits_tables_and_loses_no_number(width: int) -> None:
    console = Console(width=width, record=True, force_terminal=False)
    for table in printed(sample_paper.page()):
        print_table(table, console)

    text = console.export_text()
    for number in (
        "No: it is a typo.",
        "61.2",
        "[56.2, 66.2]",
        "paper 32.70",
        "[−8.5, 1.5]",
        "paper 58.07",
        "paper 84.65",
        "needs logits",
    ):
        assert text.count(number) >= 2, number
    assert ("continued" in text) == (width == 40)


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_opens_in_a_browser(open_page: Opener, tmp_path: Path, width: int) -> None:
    paper_page(sample_paper.page()).write(tmp_path / "index.html")

    page = open_page(tmp_path / "index.html", width)
    unfold(page)

    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    for table in page.find_elements("css selector", "#table1 .fold > div table.paper"):
        assert table.is_displayed()
        number = "paper 84.65" if "XL" in table.text else "paper 32.70"
        assert number in table.text.replace("\u00a0", " ")
        assert table.text.count("Accuracy") == (1 if width == 1400 else 0)
    bars = page.find_elements("css selector", "#figure1 svg.on-axis rect")
    widths = [bar.rect["width"] for bar in bars]
    assert len(widths) == 2
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.02)
    page.find_element("css selector", 'nav a[href="#table1"]').click()
    assert page.current_url.endswith("#table1")


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_text_is_shown_and_never_runs(open_page: Opener, tmp_path: Path, width: int) -> None:
    paper_page(hostile_page()).write(tmp_path / "index.html")

    page = open_page(tmp_path / "index.html", width)
    unfold(page)

    assert page.find_elements("css selector", "img, iframe, [onload], [onerror], main script") == []
    assert LITERAL in page.find_element("css selector", "h1").text
    assert words_in(page, "main").count(LITERAL) > 50
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
