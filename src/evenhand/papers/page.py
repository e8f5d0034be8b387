"""The page of a paper: its claims, tables and figures next to the published numbers; HTML, terminal and CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields, replace
from itertools import groupby
from pathlib import Path

from evenhand.core.format import count, finite, number, plural
from evenhand.core.presets import DEFAULT_PRESET, Element
from evenhand.papers import base
from evenhand.papers.base import (
    REPRODUCIBLE,
    VERDICTS,
    Bar,
    Figure,
    Grid,
    PaperClaim,
    PaperPage,
    PaperRow,
    Verdict,
    counted,
)
from evenhand.show.chart import (
    AxisSegment,
    Lane,
    Plot,
    PlotRow,
    arm_class,
    axis_for,
    column_points,
    covered,
    histogram,
    radar,
    stacked_on,
    tick_labels,
)
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import Page, Part, details, facts, footnote, opening, section, sentences
from evenhand.show.sections.panels import shade
from evenhand.show.sections.process import process_parts
from evenhand.show.table import Cell, Column, Content, Table, columns, csv_text, html_of
from evenhand.show.view import estimate_cell, view_of
from evenhand.studies.results import Estimate, estimate_text, with_dates

_FIRST_COLOUR = 1
_OURS, _PUBLISHED = 1, 5
"""Indexes of colour and shape."""
_UNDEFINED = Estimate("", "", None, None, None, 0)


def paper_page(shown: PaperPage) -> Page:
    """Returns the page."""
    title = with_dates(shown.title, shown.process.provenance) if shown.process else shown.title
    parts = [_overview(shown, title)]
    if shown.claims:
        parts.append(Part("claims", "Claims", _claims_section(shown.claims)))
    parts += [Part(each.id, each.title.partition(":")[0], _table(each)) for each in shown.tables]
    parts += [Part(each.id, each.title.partition(":")[0], _figure(each)) for each in shown.figures if each.bars]
    if shown.cases:
        parts.append(Part("cases", "Cases", _cases(shown)))
    if shown.itself:
        parts.append(Part("itself", "The published tables", _itself(shown)))
    if shown.elements:
        parts.append(Part("presets", "Presets", _presets(shown)))
    parts.append(Part("compare", "What to compare", _comparable(shown)))
    if shown.process:
        parts += process_parts(view_of(shown.process))
    return Page(title, parts, ("paper.css",))


def _overview(shown: PaperPage, title: str) -> Part:
    return opening(
        title,
        "a paper's results, made again",
        _answer(shown.claims),
        _found(shown.found),
        tag("p", shown.lead, class_="lead") if shown.lead else None,
        _warnings(shown.warnings),
        footnote(["Published numbers: ", shown.source]),
    )


def _found(found: Sequence[tuple[str, str]]) -> Html | None:
    if not found:
        return None
    items = [tag("li", tag("b", arm), tag("span", sentence)) for arm, sentence in found]
    return tag("div", tag("h2", "What was found"), tag("ul", items), class_="answer found")


def _warnings(warnings: Sequence[str]) -> Html | None:
    if not warnings:
        return None
    return tag("div", tag("h2", "Read with care"), sentences(warnings, None), class_="warnings", role="note")


def _titled(name: str) -> str:
    """Capitalises a heading; model specs stay unchanged."""
    return name if "/" in name else name[:1].upper() + name[1:]


# --- claims ---

_WORDS: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "published size excluded": ("has its published size excluded", "have their published size excluded"),
    "cannot be determined": ("cannot be determined", "cannot be determined"),
}
_CLASSES: dict[Verdict, str] = {
    "holds": "holds",
    "fails": "fails",
    "published size excluded": "excluded",
    "cannot be determined": "untold",
}
_NAMED = 3
"""Claims that the first screen names for each verdict."""
_LEAD = (
    "Each claim is tested on our own runs. It holds or fails if the difference is significant after Holm's correction. "
    "Otherwise our intervals may lie below the size that the paper published, or it cannot be determined. Answers that "
    "are far shorter, longer or rarer than those they are compared with decide nothing."
)


def variants(claims: Sequence[PaperClaim]) -> dict[tuple[str, str], str]:
    """Returns (model, preset) → its name; the model is left out where there is only one."""
    keys = list(dict.fromkeys((claim.model, claim.preset) for claim in claims))
    several = len({model for model, _ in keys}) > 1
    return {key: " · ".join(filter(None, [key[0] if several or not key[1] else "", _preset(key[1])])) for key in keys}


def main_variants(claims: Sequence[PaperClaim]) -> dict[tuple[str, str], str]:
    """Returns the variants without a model's claims that hold for all presets, which count in each of them."""
    found = variants(claims)
    with_presets = {model for model, preset in found if preset}
    return {(model, preset): name for (model, preset), name in found.items() if preset or model not in with_presets}


def claims_of(claims: Sequence[PaperClaim], variant: tuple[str, str]) -> list[PaperClaim]:
    """Returns the claims about a model and preset, those for all its presets included."""
    return [claim for claim in claims if claim.model == variant[0] and claim.preset in (variant[1], "")]


def _preset(name: str) -> str:
    return f"preset {name}" if name else ""


def counts_sentence(claims: Sequence[PaperClaim]) -> str:
    """Says how many claims hold, fail and cannot be determined."""
    counts = counted(claims)
    parts = [
        f"{count(n)} {_WORDS[verdict][n != 1]}"
        for verdict, n in counts.items()
        if n or verdict != "published size excluded"
    ]
    return f"{plural(len(claims), 'claim')}: {', '.join(parts)}"


def _answer(claims: Sequence[PaperClaim]) -> Html | None:
    """Returns the answer of the first screen: a line and a bar for each model and preset."""
    if not claims:
        return None
    lines: list[Node] = []
    for key, name in main_variants(claims).items():
        own = claims_of(claims, key)
        lines.append(
            tag(
                "li",
                tag("span", name, class_="variant"),
                tag("span", counts_sentence(own), class_="count"),
                _verdict_bar(own),
                [_listed(verdict, own) for verdict in ("holds", "fails", "published size excluded")],
            )
        )
    return tag(
        "div",
        tag("h2", "Does what the paper says hold here?"),
        tag("ul", lines),
        tag("p", tag("a", "Every claim, with its reason", href="#claims")),
        class_="answer",
    )


def _listed(verdict: Verdict, claims: Sequence[PaperClaim]) -> Html | None:
    texts = [claim.text for claim in claims if claim.verdict == verdict]
    if not texts:
        return None
    more = [f"and {len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    said = "; ".join([*texts[:_NAMED], *more])
    return tag("span", tag("b", f"{_WORDS[verdict][len(texts) != 1].capitalize()}: "), f"{said}.", class_="named")


def _verdict_bar(claims: Sequence[PaperClaim]) -> Html:
    """Returns the shares of the verdicts as one bar; the sentence beside it says the same."""
    counts, start = counted(claims), 0.0
    parts: list[Node] = []
    for verdict in VERDICTS:
        width = 100 * counts[verdict] / len(claims)
        parts.append(tag("rect", x=f"{start:.2f}%", width=f"{width:.2f}%", height=9, class_=_CLASSES[verdict]))
        start += width
    return tag("svg", parts, class_="tally", width="100%", height=9, aria_hidden="true")


def _claims_section(claims: Sequence[PaperClaim]) -> Html:
    """Returns every claim with the verdict and the reason for each model and preset."""
    named = variants(claims)
    items: list[Node] = []
    for text, place in dict.fromkeys((claim.text, claim.place) for claim in claims):
        verdicts = [
            tag(
                "div",
                tag(
                    "dt",
                    tag("span", claim.verdict, class_=f"chip {_CLASSES[claim.verdict]}"),
                    tag("span", named[claim.model, claim.preset], class_="variant"),
                ),
                tag("dd", claim.why),
            )
            for claim in claims
            if (claim.text, claim.place) == (text, place)
        ]
        items.append(tag("li", tag("h3", text), tag("p", place, class_="place"), tag("dl", verdicts)))
    return section("claims", "What the paper says", _LEAD, tag("ol", items, class_="claims"))


# --- tables ---


def _table(shown: base.PaperTable) -> Html:
    content = [_points(shown.grids), _key(), [_named(shown, grid) for grid in shown.grids], _said(shown.sentences)]
    has_ours = any(row.ours for grid in shown.grids for row in grid.rows)
    title = shown.title if has_ours else f"{shown.title} (published numbers only)"
    return section(shown.id, title, shown.lead, content)


def _named(shown: base.PaperTable, grid: Grid) -> Html:
    table = grid_table(f"{shown.title}, {grid.name}", grid)
    reasons = [each.reproducible for each in grid.rows]
    below: Html | None = None
    if any(reasons) and len(grid.columns) > _NARROW:
        below = _reasons(grid)  # a further column would be cut
    elif any(reasons):
        # In the terminal, sentences need too much width, so they are a table of their own.
        named = zip(table.rows, reasons, strict=True)
        rows = [[*row, Cell(why, look="" if why else "empty")] for row, why in named]
        table = replace(table, columns=[*table.columns, Column(REPRODUCIBLE, look="reason")], rows=rows)
    heading = tag("h3", _titled(grid.name), class_="grid-name") if len(shown.grids) > 1 else None
    return tag("div", heading, _lanes(grid), html_of(table), below)


_NARROW = 6
"""With more columns than this, reasons stand below the table."""


def _reasons(grid: Grid) -> Html:
    """Returns each reason once, with the rows that it is about."""
    by_reason: dict[str, list[str]] = {}
    for row in grid.rows:
        if row.reproducible:
            by_reason.setdefault(row.reproducible, []).append(", ".join(filter(None, [row.method, row.setting])))
    return tag("div", footnote(REPRODUCIBLE), facts(("; ".join(rows), why) for why, rows in by_reason.items()))


def _key() -> Html:
    return tag(
        "p",
        tag("span", "12.3", class_="value"),
        " ours, with its 95 % interval and n · ",
        tag("span", "paper 45.67", class_="published"),
        " as published, for another model",
        class_="footnote paper-key",
    )


def grid_table(title: str, grid: Grid) -> Table:
    """Returns our numbers, and below each the published one."""
    heads = [Column(c.title, True, c.hint, c.over, name=c.name) for c in grid.columns]
    rows: list[list[Content]] = []
    for _, group in groupby(grid.rows, key=lambda row: row.method):
        for i, row in enumerate(group):
            rows.append([_method(row, first=i == 0), *(_cell(grid, row, cell) for cell in row.cells)])
    look = "paper" if grid.full is None else "paper differences"
    first = Column(grid.rows_are, short=" ")
    return Table(title, [first, *heads], rows, range(len(rows)), look, cards=True, narrow=True)


def _method(row: PaperRow, *, first: bool) -> Cell:
    name: list[Node] = [tag("b", row.method, class_=None if first else "again")]
    if row.setting:
        name.append(tag("span", row.setting))
    if row.note:
        name.append(tag("span", row.note, class_="why-not"))
    notes = [f"  {row.setting}" if row.setting else "", f"  ({row.note})" if row.note else ""]
    return Cell(row.method, notes=[*filter(None, notes)], html=tag("span", name, class_="method"))


def _cell(grid: Grid, row: PaperRow, cell: base.PaperCell) -> Cell:
    """Returns our number and below it the paper's; a dash only in rows with our numbers."""
    ours = estimate_cell(cell.estimate, grid.digits) if row.ours else Cell()
    spread = () if cell.spread is None else (f"± {number(cell.spread, grid.digits)} SD",)
    published = "" if cell.published is None else number(cell.published, 2 if grid.digits else 0)
    if published and (row.ours or grid.full is None):  # a matrix of published numbers alone says so in its name
        published = f"paper {published}"
    value = cell.published if cell.estimate is None else cell.estimate.value
    look = "" if grid.full is None else shade(value, grid.full)
    found = replace(ours, notes=[*ours.notes, *spread], reference=published, look=look)
    return found if found.text or found.notes or published else replace(found, look="empty")


def _said(said: Sequence[str]) -> Html | None:
    if not said:
        return None
    heading = tag("h3", "Paired comparisons with Default, over all items", class_="grid-name")
    return tag("div", heading, sentences(said))


# --- charts of tables ---


def _lanes(grid: Grid) -> Html | None:
    """Returns a chart for each column that the grid wants drawn; None if none has a number of ours."""
    drawn = [(i, column) for i, column in enumerate(grid.columns) if column.name in grid.lanes]
    figures: list[Node] = []
    for i, column in drawn:
        if any(_ours(row, i) for row in grid.rows):
            title = ", ".join(filter(None, [column.title, column.over.lower(), column.hint]))
            shown = [row for row in grid.rows if _ours(row, i) or row.cells[i].published is not None]
            rows = [_lane_row(row, i, column.title) for row in shown]
            plot = Plot(column.title, rows, include_zero=True, margin=2, axis_above=False)
            figures.append(tag("figure", tag("figcaption", tag("strong", title)), plot.html()))
    return tag("div", figures, class_="multiples lanes") if figures else None


def _lane_row(row: PaperRow, index: int, title: str) -> PlotRow:
    cell, name = row.cells[index], f"{row.method} {row.setting}, {title}"
    parts: list[Lane] = []
    if cell.estimate is not None and row.ours:
        parts.append(Lane.of(_OURS, cell.estimate, f"{name}, ours: {estimate_text(cell.estimate)}"))
    if cell.published is not None:
        text = f"{name}, as published: {number(cell.published, 2)}"
        # An n that is not known must not make the mark hollow, as one of few samples would be.
        parts.append(Lane(_PUBLISHED, cell.published, None, None, 1_000, text))
    return PlotRow(row.method, row.setting, parts)


def _ours(row: PaperRow, index: int) -> bool:
    estimate = row.cells[index].estimate
    return row.ours and estimate is not None and estimate.value is not None


def _points(grids: Sequence[Grid]) -> Html | None:
    """Returns the drawn grids side by side with one scale and legend; None if no grid is drawn."""
    radars = [_radars(grid) for grid in grids if grid.radar]
    if radars:
        return tag("div", radars)
    drawn = [grid for grid in grids if grid.drawn]
    if not drawn:
        return None
    rows = [row.cells[: _width(grid)] for grid in drawn for row in grid.rows[: grid.drawn]]
    estimates = [cell.estimate for cells in rows for cell in cells]
    axis = axis_for(covered(estimates))
    figures: list[Node] = []
    for grid in drawn:
        names = [column.title for column in grid.columns[: _width(grid)]]
        series = [
            [
                (cell.estimate, f"{row.setting}, {grid.name} {name}: {estimate_text(cell.estimate)}")
                for name, cell in zip(names, row.cells, strict=False)
            ]
            for row in grid.rows[: grid.drawn]
        ]
        label = f"{grid.name}. {'; '.join(text for each in series for _, text in each)}"
        chart = column_points(axis, names, series, _FIRST_COLOUR, label)
        figures.append(tag("figure", tag("figcaption", tag("strong", grid.name)), chart))
    return tag("div", _colours(_names(drawn[0].rows[: drawn[0].drawn])), tag("div", figures, class_="multiples"))


def _radars(grid: Grid) -> Html:
    """Returns a radar for each model with the values of every method, and their colours."""
    names = [column.title for column in grid.columns[: _width(grid)]]
    methods = list(dict.fromkeys(_method_name(row) for row in grid.rows))
    values = {
        id(row): [cell.published if cell.estimate is None else cell.estimate.value for cell in row.cells[: len(names)]]
        for row in grid.rows
    }
    axis = axis_for([value for each in values.values() for value in each])
    figures: list[Node] = []
    for model, rows in groupby(grid.rows, key=lambda row: row.method):
        known = [row for row in rows if None not in values[id(row)]]
        if known:
            series = [
                (
                    _FIRST_COLOUR + methods.index(_method_name(row)),
                    values[id(row)],
                    _said_of(row, names, values[id(row)]),
                )
                for row in known
            ]
            label = f"{grid.name}, {model}. {'; '.join(text for _, _, text in series)}"
            whose = "" if any(row.ours for row in known) else " as published"
            caption = tag("figcaption", tag("strong", model), whose)
            figures.append(tag("figure", caption, radar(axis, names, series, label)))
    return tag("div", _colours(methods), tag("div", figures, class_="multiples narrow"))


def _method_name(row: PaperRow) -> str:
    """Returns the method without its mode, since the paper names none."""
    return row.setting.partition(" (")[0]


def _said_of(row: PaperRow, names: Sequence[str], values: Sequence[float | None]) -> str:
    return f"{row.setting}: {', '.join(f'{name} {number(value)}' for name, value in zip(names, values, strict=True))}"


def _width(grid: Grid) -> int:
    return len(grid.columns) - grid.undrawn


def _names(rows: Sequence[PaperRow]) -> list[str]:
    """Returns what tells the rows apart: the setting, and the model where there are several."""
    several = len({row.method for row in rows}) > 1
    return [", ".join(filter(None, [row.method if several else "", row.setting])) or row.method for row in rows]


def _colours(names: Sequence[str]) -> Html:
    """Returns the legend of a chart whose parts have colours of their own."""
    keys = [
        tag("li", tag("span", class_=f"key {arm_class(_FIRST_COLOUR + i)}", aria_hidden="true"), tag("b", name))
        for i, name in enumerate(names)
    ]
    return tag("ul", keys, class_="legend keys")


# --- figures ---


def _figure(shown: Figure) -> Html:
    chart = _histograms(shown) if shown.kind == "histogram" else _stacks(shown)
    return section(shown.id, shown.title, shown.lead, chart, html_of(_figure_table(shown)))


def _stacks(shown: Figure) -> Html:
    totals = [sum(finite(each.value) or 0.0 for each in bar.parts) for bar in shown.bars]
    axis = axis_for([*totals, 10.0], include_zero=True)
    rows: list[Node] = []
    for bar in shown.bars:
        texts = _part_texts(shown, bar)
        name = tag("span", tag("span", _titled(bar.name)), tag("small", bar.setting), class_="row-name")
        parts = [
            AxisSegment(_FIRST_COLOUR + i, finite(each.value) or 0.0, text)
            for i, (each, text) in enumerate(zip(bar.parts, texts, strict=True))
        ]
        label = f"{bar.name} {bar.setting}. {'; '.join(texts)}"
        rows.append(tag("div", name, stacked_on(axis, parts, label), class_="row"))
    ticks = tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")
    return tag("figure", _colours(shown.parts), tag("div", rows, ticks, class_="plot"))


def _part_texts(shown: Figure, bar: Bar) -> list[str]:
    return [f"{part}: {estimate_text(each)}" for part, each in zip(shown.parts, bar.parts, strict=True)]


def _histograms(shown: Figure) -> Html:
    """Returns the charts side by side, all on one scale; each setting has one colour."""
    settings = list(dict.fromkeys(bar.setting for bar in shown.bars))
    highest = max((finite(part.value) or 0.0 for bar in shown.bars for part in bar.parts), default=0.0)
    figures: list[Node] = []
    for bar in shown.bars:
        texts = _part_texts(shown, bar)
        bins = [
            (_short(name), finite(part.value) or 0.0, text)
            for name, part, text in zip(shown.parts, bar.parts, texts, strict=True)
        ]
        label = f"{bar.name}, {bar.setting}. {'; '.join(texts)}"
        chart = histogram(bins, highest or 100.0, _FIRST_COLOUR + settings.index(bar.setting), label)
        n = max(part.n for part in bar.parts)
        caption = tag("figcaption", tag("strong", bar.name), f" {bar.setting}, n = {count(n)}")
        figures.append(tag("figure", caption, chart))
    return tag("div", figures, class_="multiples")


def _short(name: str) -> str:
    """Shortens `−3 or less` to `≤ −3`."""
    value, _, more = name.partition(" or ")
    return {"less": f"≤\u00a0{value}", "more": f"≥\u00a0{value}"}.get(more, name)


def _figure_table(shown: Figure) -> Table:
    heads = columns("Model" if shown.kind == "histogram" else "Data set", "Setting", *shown.parts, words=2)
    rows = [[_titled(bar.name), bar.setting, *(estimate_cell(each) for each in bar.parts)] for bar in shown.bars]
    return Table(f"{shown.title}, numbers", heads, rows, look="paper figure-numbers", cards=True, narrow=True)


def _cases(shown: PaperPage) -> Html:
    blocks: list[Node] = []
    for case in shown.cases:
        title = [tag("b", case.question), " ", tag("small", case.about)]
        blocks.append(details(title, facts(case.answers, "facts cases")))
    lead = "Answers to read, because numbers can mislead. They are quoted as the models wrote them."
    return section("cases", shown.cases_title, lead, blocks)


def _itself(shown: PaperPage) -> Html:
    lead = "Computed from the published numbers alone, without a run of ours."
    return section("itself", "What the published tables say about themselves", lead, facts(shown.itself))


def element_rows(elements: Sequence[Element]) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and rows of the table of presets: element, each preset in words, why ours differs."""
    names = [each for each in base.PRESETS if any(each in element.said for element in elements)]
    heads = ["Element", *(_HEADS[name] for name in names), "Why"]
    return heads, [[each.name, *(each.said.get(name, "") for name in names), each.why] for each in elements]


_HEADS = {base.PAPER_PRESET: "Paper", base.RELEASED: "Released", DEFAULT_PRESET: "Ours"}


def _presets(shown: PaperPage) -> Html:
    heads, rows = element_rows(shown.elements)
    lead = "What each preset does; the wording of all prompts is ours. The claims above name the preset they are about."
    table = Table("Presets", columns(*heads, words=len(heads)), rows, look="paper words", cards=True, narrow=True)
    return section("presets", "What the presets do", lead, html_of(table), is_open=False)


def _comparable(shown: PaperPage) -> Html:
    lead = "The numbers above are not always comparable."
    return section("compare", "What to compare, and what not", lead, facts(shown.notes))


# --- the terminal ---


def printed(page: PaperPage) -> Iterator[Table]:
    """Yields the tables and figures of the page.

    If a table has our numbers, grids that only repeat the paper are shown on the page only.
    """
    if page.claims:
        yield _claims_table(page.claims)
    if page.found:
        yield Table("What was found", columns("", "", words=2), page.found, range(len(page.found)), headless=True)
    for table in page.tables:
        ours = [grid for grid in table.grids if any(row.ours for row in grid.rows)]
        for grid in ours or table.grids:
            yield from _printed_grid(table, grid)
    for figure in page.figures:
        yield _printed_figure(figure)


def _claims_table(claims: Sequence[PaperClaim]) -> Table:
    """Returns the claims with their verdicts; the reasons are on the page."""
    named = main_variants(claims)
    rows = [
        [text, *(next((c.verdict for c in claims_of(claims, key) if c.text == text), "") for key in named)]
        for text in dict.fromkeys(claim.text for claim in claims)
    ]
    title = "What the paper says, and whether it holds here (reasons: on the page)"
    return Table(title, columns("", *named.values(), words=1 + len(named)), rows)


def _printed_grid(table: base.PaperTable, grid: Grid) -> Iterator[Table]:
    title = table.title + (f" ({grid.name})" if len(table.grids) > 1 else "")
    shown = grid_table(title, grid)
    kept = [
        cells
        for cells, row in zip(shown.rows, grid.rows, strict=True)
        if row.note or any(isinstance(cell, Cell) and (cell.text or cell.reference) for cell in cells[1:])
    ]
    yield replace(shown, rows=kept, ends=range(len(kept)))
    reasons = [
        [", ".join(filter(None, [row.method, row.setting])), row.reproducible] for row in grid.rows if row.reproducible
    ]
    if reasons:
        yield Table(f"{title}: {REPRODUCIBLE.lower()}", columns("", "", words=2), reasons, headless=True)


def _printed_figure(figure: Figure) -> Table:
    # A histogram has many bins, so their intervals are only on the page and in the CSV file.
    short = figure.kind == "histogram"
    rows: list[list[Content]] = []
    for bar in figure.bars:
        cells = [number(each.value) if short else estimate_cell(each) for each in bar.parts]
        shown = [bar.note] * len(cells) if bar.note else cells
        rows.append([", ".join(filter(None, [bar.name, bar.setting])), *shown])
    return Table(f"{figure.title}, %", columns("", *figure.parts), rows)


# --- files ---

_NUMBERS = ("value", "low", "high", "n")


def write_csv_files(page: PaperPage, folder: Path) -> list[Path]:
    """Writes one file per table and figure of the page, one line per number, and one of the claims."""
    files = {"claims": _claims_file(page.claims)} if page.claims else {}
    files |= {each.id: _table_file(each) for each in page.tables}
    files |= {each.id: _figure_file(each) for each in page.figures}
    written: list[Path] = []
    for name, table in files.items():
        written.append(folder / f"{name}.csv")
        written[-1].write_text(csv_text(table), encoding="utf-8", newline="")
    return written


def _file(names: Sequence[str], lines: Sequence[Sequence[float | str | None]]) -> Table:
    rows = [[each if isinstance(each, str) else Cell(value=each) for each in line] for line in lines]
    return Table("", columns(*names), rows)


def _claims_file(claims: Sequence[PaperClaim]) -> Table:
    return _file([each.name for each in fields(PaperClaim)], [astuple(claim) for claim in claims])


def _table_file(table: base.PaperTable) -> Table:
    about = ("data_set", "method", "setting", "metric")
    paper = ("published", "published_as", "note", "reproducible", "sd")
    lines = [
        (
            *(grid.name, row.method, row.setting, column.name),
            *_numbers(cell.estimate),
            *(cell.published, row.published_as, row.note, row.reproducible, cell.spread),
        )
        for grid in table.grids
        for row in grid.rows
        for column, cell in zip(grid.columns, row.cells, strict=True)
    ]
    return _file((*about, *_NUMBERS, *paper), lines)


def _figure_file(figure: Figure) -> Table:
    lines = [
        (bar.name, bar.setting, part, *_numbers(estimate), bar.note)
        for bar in figure.bars
        for part, estimate in zip(figure.parts, bar.parts, strict=True)
    ]
    return _file(("data_set", "setting", "part", *_NUMBERS, "note"), lines)


def _numbers(estimate: Estimate | None) -> tuple[float | None, float | None, float | None, int]:
    each = estimate or _UNDEFINED
    return (each.value, each.low, each.high, each.n)
