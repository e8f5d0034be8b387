"""A paper's tables and figures as one HTML file in the style of our reports, next to the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from evenhand.core.format import finite, number
from evenhand.papers.base import REPRODUCIBLE, Cell, Column, Figure, Grid, PaperPage, Row, Table
from evenhand.papers.page.claims import answer, claims_section
from evenhand.papers.page.histogram import histograms
from evenhand.papers.page.lanes import lanes
from evenhand.papers.page.points import charts
from evenhand.show.charts import AxisSegment, arm_class, stacked_on, tick_labels
from evenhand.show.charts.axis import axis_for
from evenhand.show.html import page as whole_page
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import estimate_cell, scrolling, section, table
from evenhand.show.sections.panels.scores import shade
from evenhand.show.sections.process import cost, failures, how_made
from evenhand.show.view import view_of
from evenhand.studies.results import estimate_text, with_dates

_STYLES = ("page.css", "tables.css", "charts.css", "panels.css", "paper.css")
_SCRIPTS = ("page.js",)
_FIRST_COLOUR = 1


def render_page(shown: PaperPage) -> str:
    """Returns the whole page as HTML text."""
    title = with_dates(shown.title, shown.process.provenance) if shown.process else shown.title
    parts = [("overview", "Overview", _overview(shown, title))]
    if shown.claims:
        parts.append(("claims", "Claims", claims_section(shown.claims)))
    parts += [(each.id, each.title.partition(":")[0], _table(each)) for each in shown.tables]
    parts += [(each.id, each.title.partition(":")[0], _figure(each)) for each in shown.figures if each.bars]
    if shown.cases:
        parts.append(("cases", "Cases", _cases(shown)))
    parts.append(("compare", "What to compare", _comparable(shown)))
    parts += _process(shown)
    titles = [(name, named) for name, named, _ in parts]
    return whole_page(title, titles, tag("main", [html for _, _, html in parts]), _STYLES, _SCRIPTS)


def _process(shown: PaperPage) -> list[tuple[str, str, Html]]:
    if shown.process is None:
        return []
    view = view_of(shown.process)
    parts = (
        ("cost", "Cost", cost(view)),
        ("failures", "Failures", failures(view)),
        ("made", "How it was made", how_made(view)),
    )
    return [(name, title, html) for name, title, html in parts if html is not None]


def _overview(shown: PaperPage, title: str) -> Html:
    return tag(
        "section",
        tag("p", "Evenhand", tag("span", "a paper's results, made again", class_="benchmark"), class_="eyebrow"),
        tag("h1", title, id="overview-title"),
        answer(shown.claims),
        _found(shown.found),
        tag("p", shown.lead, class_="lead") if shown.lead else None,
        _warnings(shown.warnings),
        tag("p", "Published numbers: ", shown.source, class_="footnote"),
        id="overview",
        aria_labelledby="overview-title",
    )


def _found(found: Sequence[tuple[str, str]]) -> Html | None:
    if not found:
        return None
    items = [tag("li", tag("b", arm), tag("span", sentence)) for arm, sentence in found]
    return tag("div", tag("h2", "What was found"), tag("ul", items), class_="answer found")


def _warnings(warnings: Sequence[str]) -> Html | None:
    if not warnings:
        return None
    items = [tag("li", warning) for warning in warnings]
    return tag("div", tag("h2", "Read with care"), tag("ul", items), class_="warnings", role="note")


def _titled(name: str) -> str:
    """Capitalises a heading; model specs stay unchanged."""
    return name if "/" in name else name[:1].upper() + name[1:]


# --- tables ---


def _table(shown: Table) -> Html:
    grids = [_named(shown, grid) for grid in shown.grids]
    content = [charts(shown.grids), _key(), grids, _sentences(shown.sentences)]
    if _is_ours(shown):
        return section(shown.id, shown.title, shown.lead, content)
    return section(shown.id, f"{shown.title} (published numbers only)", shown.lead, content, is_open=False)


def _named(shown: Table, grid: Grid) -> Html:
    name = f"{shown.title}, {grid.name}"
    content: Node = [lanes(grid), scrolling(_grid(grid, name), name)]
    if _is_ours(shown) and not any(row.ours for row in grid.rows):
        # Grids that only repeat the paper are collapsed.
        return tag("details", tag("summary", _titled(grid.name)), content)
    heading = tag("h3", _titled(grid.name), class_="grid-name") if len(shown.grids) > 1 else None
    return tag("div", heading, content)


def _is_ours(shown: Table) -> bool:
    return any(row.ours for grid in shown.grids for row in grid.rows)


def _key() -> Html:
    return tag(
        "p",
        tag("span", "12.3", class_="value"),
        " ours, with its 95 % interval and n · ",
        tag("span", "paper 45.67", class_="published"),
        " as published, for another model",
        class_="footnote paper-key",
    )


def _grid(grid: Grid, label: str) -> Html:
    """A real table that becomes cards on a narrow screen, hence the explicit roles."""
    head = [_over(grid.columns)] if any(column.over for column in grid.columns) else []
    titles = [tag("th", c.title, tag("small", c.hint), scope="col", role="columnheader") for c in grid.columns]
    if reasons := any(row.reproducible for row in grid.rows):
        titles.append(tag("th", REPRODUCIBLE, scope="col", role="columnheader", class_="reason"))
    head.append(tag("tr", tag("th", grid.rows_are, scope="col", role="columnheader"), titles, role="row"))
    body: list[Node] = []
    for _, rows in groupby(grid.rows, key=lambda row: row.method):
        for i, row in enumerate(rows):
            body.append(_row(grid, row, first=i == 0, reasons=reasons))
    return tag(
        "table",
        tag("thead", head, role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
        class_="paper" if grid.full is None else "paper differences",
        role="table",
        aria_label=label,
    )


def _over(columns: Sequence[Column]) -> Html:
    """Returns the headings shared by neighbouring columns."""
    shared = [(name, len(list(group))) for name, group in groupby(columns, key=lambda column: column.over)]
    cells = [tag("th", name, colspan=n, scope="colgroup", role="columnheader") for name, n in shared]
    return tag("tr", tag("td", role="cell"), cells, class_="over", role="row")


def _row(grid: Grid, row: Row, *, first: bool, reasons: bool) -> Html:
    name: list[Node] = [tag("b", row.method, class_=None if first else "again")]
    if row.setting:
        name.append(tag("span", row.setting))
    if row.note:
        name.append(tag("span", row.note, class_="why-not"))
    cells: list[Node] = [tag("th", tag("span", name, class_="method"), scope="row", role="rowheader")]
    for column, cell in zip(grid.columns, row.cells, strict=True):
        label = f"{column.over}: {column.title}" if column.over else column.title
        inside = _cell(cell, row, grid.digits)
        css = _shade(grid, cell) if inside else "empty"
        cells.append(tag("td", inside, role="cell", data_label=label, class_=css))
    if reasons:
        empty = "" if row.reproducible else " empty"
        cells.append(tag("td", row.reproducible, role="cell", data_label=REPRODUCIBLE, class_=f"reason{empty}"))
    return tag("tr", cells, role="row", class_="first" if first else None)


def _shade(grid: Grid, cell: Cell) -> str | None:
    """Returns the colour of a matrix cell."""
    value = cell.published if cell.estimate is None else cell.estimate.value
    return None if grid.full is None else shade(value, grid.full)


def _cell(cell: Cell, row: Row, digits: int) -> list[Node]:
    """Returns our number and below it the paper's; a dash only in rows with our numbers."""
    inside: list[Node] = [estimate_cell(cell.estimate, digits)] if row.ours else []
    if cell.spread is not None:
        inside.append(tag("span", f"±\u00a0{number(cell.spread, digits)}\u00a0SD", class_="limits"))
    if cell.published is not None:
        inside.append(tag("span", f"paper\u00a0{number(cell.published, 2)}", class_="published"))
    return inside


def _sentences(sentences: Sequence[str]) -> Html | None:
    if not sentences:
        return None
    items = [tag("li", sentence) for sentence in sentences]
    heading = tag("h3", "Paired comparisons with Default, over all items", class_="grid-name")
    return tag("div", heading, tag("ul", items, class_="sentences"))


# --- figures ---


def _figure(shown: Figure) -> Html:
    if shown.kind == "histogram":
        return section(shown.id, shown.title, shown.lead, histograms(shown), _numbers(shown))
    totals = [sum(finite(each.value) or 0.0 for each in bar.parts) for bar in shown.bars]
    axis = axis_for([*totals, 10.0], include_zero=True)
    keys = [
        tag("li", tag("span", class_=f"key {arm_class(_FIRST_COLOUR + i)}", aria_hidden="true"), tag("b", part))
        for i, part in enumerate(shown.parts)
    ]
    rows: list[Node] = []
    for bar in shown.bars:
        texts = [f"{part}: {estimate_text(each)}" for part, each in zip(shown.parts, bar.parts, strict=True)]
        name = tag("span", tag("span", _titled(bar.name)), tag("small", bar.setting), class_="row-name")
        parts = [
            AxisSegment(_FIRST_COLOUR + i, finite(each.value) or 0.0, text)
            for i, (each, text) in enumerate(zip(bar.parts, texts, strict=True))
        ]
        label = f"{bar.name} {bar.setting}. {'; '.join(texts)}"
        rows.append(tag("div", name, stacked_on(axis, parts, label), class_="row"))
    ticks = tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")
    chart = tag("figure", tag("ul", keys, class_="legend keys"), tag("div", rows, ticks, class_="plot"))
    return section(shown.id, shown.title, shown.lead, chart, _numbers(shown))


def _numbers(shown: Figure) -> Html:
    head: list[Node] = ["Model" if shown.kind == "histogram" else "Data set", "Setting", *shown.parts]
    rows: list[list[Node]] = [
        [_titled(bar.name), bar.setting, *(estimate_cell(each, 1) for each in bar.parts)] for bar in shown.bars
    ]
    return table(head, rows, f"{shown.title}, numbers", "numbers figure-numbers")


def _cases(shown: PaperPage) -> Html:
    blocks: list[Node] = []
    for case in shown.cases:
        said = [tag("div", tag("dt", arm), tag("dd", answer)) for arm, answer in case.answers]
        title = tag("summary", tag("b", case.question), " ", tag("small", case.about))
        blocks.append(tag("details", title, tag("dl", said, class_="facts cases")))
    lead = "Answers to read, because numbers can mislead. They are quoted as the models wrote them."
    return section("cases", shown.cases_title, lead, blocks)


def _comparable(shown: PaperPage) -> Html:
    items = [tag("div", tag("dt", about), tag("dd", text)) for about, text in shown.notes]
    lead = "The numbers above are not always comparable."
    return section("compare", "What to compare, and what not", lead, tag("dl", items, class_="facts"))
