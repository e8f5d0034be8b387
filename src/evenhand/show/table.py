"""A table as a value, and how it is written as HTML, in a notebook, as CSV, Markdown and LaTeX; `terminal` prints it.

A row is a sequence of cells: plain text, or a `Cell` with the number behind it. Every renderer escapes all text.
"""

from __future__ import annotations

import csv
import importlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evenhand.core.errors import UsageError
from evenhand.core.format import DASH, count, finite, limits, number, plain_cell, signed
from evenhand.core.untrusted import one_line
from evenhand.show.chart import legend_mark
from evenhand.show.markup import Html, Node, clean, escape, tag

if TYPE_CHECKING:
    from evenhand.stats import Interval

Kind = Literal["text", "estimate", "verdict", "code"]
Content: TypeAlias = "Cell | str | None"
_NOTEBOOK_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
_MARKDOWN = str.maketrans({char: f"\\{char}" for char in "\\|`*_[]"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: what it says, and for files the number behind it."""

    text: str = ""
    kind: Kind = "text"
    value: float | None = None
    """The number, unrounded; None where the text is all."""
    low: float | None = None
    high: float | None = None
    n: int | None = None
    limits: str = ""
    """The interval, beside the text or below it."""
    notes: Sequence[str] = ()
    """In small print below: n, what it is compared with."""
    reference: str = ""
    """A number to compare with, such as the published one."""
    href: str = ""
    mark: int | None = None
    """The place of the arm whose mark stands before the text."""
    look: str = ""
    """CSS classes on a page."""
    html: Node = None
    """What a page shows instead, e.g. a chart."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and whether it holds numbers, which stand right and are never cut."""

    title: str
    numeric: bool = False
    hint: str = ""
    """In small print: which way is better."""
    over: str = ""
    """A heading shared with neighbouring columns."""
    short: str = ""
    """The title for the terminal, where it should be shorter."""
    name: str = ""
    """The name in files, if not the title."""
    look: str = ""
    head: Node = None
    """What a page shows instead of the title, e.g. an axis."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row is its name."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Content]]
    ends: Collection[int] = ()
    """The rows after which a part of the table ends."""
    look: str = ""
    cards: bool = False
    """Whether rows become cards on a narrow screen."""
    caption: str = ""
    hint: str = ""
    """After the caption: which way is better."""
    headless: bool = False
    """Whether the terminal leaves the titles of columns out."""
    narrow: bool = False
    """Whether the terminal puts intervals below their numbers."""

    def only(self, places: Sequence[int]) -> Table:
        """The same table with these columns, in this order."""
        rows = [[row[place] for place in places] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in places], rows=rows)

    def transposed(self, ends: Collection[int] = ()) -> Table:
        """The same table with a row for each column after the first; `ends` are rows of the new table."""
        names = [Column(text_of(row[0]), numeric=True) for row in self.rows]
        rows = [[column.title, *(row[place] for row in self.rows)] for place, column in enumerate(self.columns[1:], 1)]
        return replace(self, columns=[Column(""), *names], rows=rows, ends=ends)

    def _repr_html_(self) -> str:
        return notebook_html(self)


def columns(*titles: str, words: int = 1) -> list[Column]:
    """Columns with these titles; those after the first `words` hold numbers."""
    return [Column(title, numeric=place >= words) for place, title in enumerate(titles)]


# --- cells ---


def measured(
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    digits: int = 1,
    *,
    sign: bool = False,
    n: int | None = None,
    notes: Sequence[str] = (),
    look: str = "",
) -> Cell:
    """A number with its interval; `sign` for a difference. `n` goes to files, `notes` are shown."""
    text = signed(value, digits) if sign else number(value, digits)
    between = limits(low, high, digits) if finite(value) is not None and finite(low) is not None else ""
    return Cell(text, "estimate", finite(value), finite(low), finite(high), n, between, notes, look=look)


def interval_cell(found: Interval, scale: float = 1, digits: int = 1, *, sign: bool = False) -> Cell:
    """An interval of the statistics, times `scale`."""
    shown = found.times(scale)
    return measured(shown.estimate, shown.low, shown.high, digits, sign=sign, n=found.n)


def verdict(text: str, good: bool | None, note: str = "") -> Cell:
    """A result in a word, in the colour of better or worse; None for undecided."""
    look = {True: "better", False: "worse", None: "open"}[good]
    return Cell(text, "verdict", notes=(note,) if note else (), look=look)


def code(text: str) -> Cell:
    return Cell(text, "code")


def heat(part: int, whole: int, *, right: bool = False, counted: bool = True) -> Cell:
    """A share of a row's total in whole per cent, coloured by its size; `right` outlines it."""
    step = round(10 * part / whole) if whole else 0
    text = number(100 * part / whole, 0) + " %" if whole else DASH
    return Cell(
        text, value=part, notes=(count(part),) if counted else (), look=f"heat-{step}{' right' if right else ''}"
    )


def text_of(cell: Content, gap: str = " ", below: str = ", ") -> str:
    """The cell as plain text: the number, its interval after `gap`, and what stands below it."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    first = cell.text + (f"{gap}{cell.limits}" if cell.limits else "")
    return below.join(filter(None, [first, *cell.notes, cell.reference]))


# --- HTML ---


def html_of(table: Table) -> Html:
    """The table in a box that scrolls if it is too wide."""
    return scrolling(bare_html(table), table.title)


def bare_html(table: Table) -> Html:
    """The table alone; explicit roles where it can turn into cards, since these take the roles of a table away."""

    def role(name: str) -> str | None:
        return name if table.cards else None

    css = " ".join(filter(None, ["numbers" if _is_compact(table) else "", table.look]))
    heads = [_over(table, role("columnheader"))] if any(column.over for column in table.columns) else []
    titles = [
        tag(
            "th",
            column.title if column.head is None else column.head,
            tag("small", column.hint) if column.hint else None,
            scope="col",
            role=role("columnheader"),
            class_=_css(column) or None,
        )
        for column in table.columns
    ]
    heads.append(tag("tr", titles, role=role("row")))
    body = [
        tag(
            "tr",
            tag("th", cell_html(first), scope="row", role=role("rowheader")),
            [
                _data(column, cell, role("cell"), cards=table.cards)
                for column, cell in zip(table.columns[1:], rest, strict=False)
            ],
            role=role("row"),
        )
        for first, *rest in table.rows
    ]
    caption = tag("caption", tag("strong", table.caption), f" – {table.hint}" if table.hint else None)
    return tag(
        "table",
        caption if table.caption else None,
        tag("thead", heads, role=role("rowgroup")),
        tag("tbody", body, role=role("rowgroup")),
        class_=css or None,
        role=role("table"),
        aria_label=role(table.title),
    )


def scrolling(content: Node, label: str) -> Html:
    """Return a box that scrolls sideways, also by keyboard, so that the page itself never does."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def cell_html(cell: Content) -> Node:
    if cell is None or isinstance(cell, str):
        return cell
    return cell.html if cell.html is not None else [_SHOWN[cell.kind](cell), _reference(cell)]


def _text(cell: Cell) -> Node:
    text: Node = tag("a", cell.text, href=cell.href) if cell.href else cell.text
    if cell.mark is not None:
        text = tag("span", legend_mark(cell.mark), tag("span", text), class_="arm")
    return [tag("code", text) if cell.kind == "code" else text, [tag("small", note) for note in cell.notes]]


def _estimate(cell: Cell) -> Node:
    if cell.text == DASH and not cell.notes:
        return tag("span", DASH, class_="value undefined")
    lines = [tag("span", cell.text, class_="value")]
    lines += [tag("span", cell.limits, class_="limits")] if cell.limits else []
    lines += [tag("span", note, class_="n") for note in cell.notes]
    return tag("span", lines, class_="estimate")


def _verdict(cell: Cell) -> Node:
    return tag("span", _text(cell), class_=f"reading {cell.look}")


_SHOWN: Mapping[Kind, Callable[[Cell], Node]] = {
    "text": _text,
    "code": _text,
    "estimate": _estimate,
    "verdict": _verdict,
}


def _reference(cell: Cell) -> Html | None:
    return tag("span", cell.reference.replace(" ", "\u00a0"), class_="published") if cell.reference else None


def _data(column: Column, cell: Content, role: str | None, *, cards: bool) -> Html:
    label = f"{column.over}: {column.title}" if column.over else column.title
    labelled = cards and column.head is None
    own = cell.look if isinstance(cell, Cell) and cell.kind != "verdict" else ""
    css = " ".join(filter(None, [_css(column), own]))
    return tag("td", cell_html(cell), role=role, data_label=label if labelled else None, class_=css or None)


def _css(column: Column) -> str:
    return " ".join(filter(None, ["num" if column.numeric else "", column.look]))


def _is_compact(table: Table) -> bool:
    """Whether it gets small rows; cards and heat maps have their own."""
    return not table.cards and "heat" not in table.look.split() and any(column.numeric for column in table.columns)


def _over(table: Table, role: str | None) -> Html:
    """The headings that neighbouring columns share."""
    shared = [(name, len(list(group))) for name, group in groupby(table.columns, key=lambda column: column.over)]
    cells = [
        tag("th", name, colspan=n, scope="colgroup", role=role) if name else tag("td", colspan=n, role=role and "cell")
        for name, n in shared
    ]
    return tag("tr", cells, class_="over", role=role and "row")


# --- notebooks and files ---


def notebook_html(table: Table) -> Html:
    """The table for a notebook, without a stylesheet."""
    heads = [tag("th", column.title, style=_NOTEBOOK_CELL) for column in table.columns]
    rows = [
        tag("tr", [tag("td", text_of(cell).replace(", ", ",\u00a0"), style=_NOTEBOOK_CELL) for cell in row])
        for row in table.rows
    ]
    shown = tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows))
    return tag("div", shown, style="overflow-x:auto")


def csv_text(table: Table) -> str:
    """The table as CSV: numbers unrounded, each interval and n in columns of their own."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    wide = [any(_has_interval(row[place]) for row in table.rows) for place in range(len(table.columns))]
    names = [column.name or column.title for column in table.columns]
    ends = {False: ("",), True: ("", "_low", "_high", "_n")}
    writer.writerow([f"{name}{end}" for name, is_wide in zip(names, wide, strict=True) for end in ends[is_wide]])
    for row in table.rows:
        writer.writerow([value for cell, is_wide in zip(row, wide, strict=True) for value in _values(cell, is_wide)])
    return file.getvalue()


def _has_interval(cell: Content) -> bool:
    return isinstance(cell, Cell) and (cell.low is not None or cell.n is not None)


def _values(cell: Content, is_wide: bool) -> Iterator[object]:
    number_of = cell if isinstance(cell, Cell) else None
    yield number_of.value if number_of is not None and number_of.value is not None else text_of(cell)
    if is_wide:
        yield from (None, None, None) if number_of is None else (number_of.low, number_of.high, number_of.n)


def markdown(table: Table) -> str:
    """The table in Markdown."""
    marks = "|".join("---:" if column.numeric else "---" for column in table.columns)
    head, *rows = (
        f"| {' | '.join(cells)} |"
        for cells in (
            [column.title for column in table.columns],
            *([markdown_text(text_of(cell)) for cell in row] for row in table.rows),
        )
    )
    return "\n".join([head, f"|{marks}|", *rows]) + "\n"


def markdown_text(text: str) -> str:
    """One line of text that Markdown shows literally."""
    return escape(one_line(text)).translate(_MARKDOWN)


_LATEX = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        **{char: rf"\ensuremath{{{char}}}" for char in "<>|"},
        **dict.fromkeys("✓✕●≈○!", ""),  # the word beside them says it
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "−": r"\ensuremath{-}",
        "≥": r"\ensuremath{\geq}",
        "≤": r"\ensuremath{\leq}",
        "±": r"\ensuremath{\pm}",
        "→": r"\ensuremath{\rightarrow}",
        "↑": r"\ensuremath{\uparrow}",
        "↓": r"\ensuremath{\downarrow}",
        "×": r"\ensuremath{\times}",
        "…": r"\dots{}",
        "–": "--",
        "“": "``",
        "”": "''",
        "\u202f": r"\,",
        "\u00a0": "~",
    }
)


def latex(table: Table, label: str = "") -> str:
    """The table in LaTeX, for a paper: a float with caption, which needs the package booktabs."""
    kinds = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [[f"{column.title} ({column.hint})" if column.hint else column.title for column in table.columns]]
    lines += [[text_of(cell) for cell in row] for row in table.rows]
    head, *rows = (_latex_row(line, len(kinds)) for line in lines)
    title = table.title if table.title.endswith(("?", ".")) else f"{table.title}."
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{latex_text(title)} 95\,\% intervals in brackets.}}",
            *([rf"  \label{{{label}}}"] if label else []),
            rf"  \begin{{tabular}}{{{kinds}}}",
            r"    \toprule",
            f"    {head}",
            r"    \midrule",
            *(f"    {row}" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_row(line: Sequence[str], width: int) -> str:
    shown = [latex_text(text) for text in line]
    if len(line) == 1:  # a heading inside the table
        shown = [rf"\multicolumn{{{width}}}{{l}}{{\textit{{{shown[0]}}}}}"]
    return " & ".join(shown) + r" \\"


def latex_text(text: str) -> str:
    """One line of text that LaTeX shows literally."""
    return " ".join(clean(text).translate(_LATEX).split())


# --- data frames ---


class Tabular(ABC):
    """A result with rows, which become a data frame."""

    __slots__ = ()

    @abstractmethod
    def rows(self, table: str = "") -> list[dict[str, Any]]:
        """The rows of a table as plain values; "" stands for the main one."""

    def to_pandas(self, table: str = "") -> Any:
        """The rows as a pandas data frame."""
        return _package("pandas", "to_pandas").DataFrame(flat(self.rows(table)))

    def to_polars(self, table: str = "") -> Any:
        """The rows as a polars data frame."""
        return _package("polars", "to_polars").DataFrame(flat(self.rows(table)), infer_schema_length=None)


def _package(name: str, method: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{method} needs {name}, which is not installed: pip install {name}") from None


def flat(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the same columns, in order of appearance."""
    found = list(rows)
    columns = dict.fromkeys(name for row in found for name in row)
    return [{name: plain_cell(row.get(name)) for name in columns} for row in found]
