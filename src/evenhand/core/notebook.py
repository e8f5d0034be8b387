"""Results in notebooks: escaped HTML, and data frames where pandas or polars is installed."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from evenhand.core.errors import UsageError

_CELL = '"text-align:left;vertical-align:top;padding:2px 12px 2px 0"'

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


class Framed:
    """A result with rows, which become a data frame."""

    __slots__ = ()

    def rows(self, table: str = "") -> list[dict[str, Any]]:
        """The rows of a table as plain values; "" stands for the main one."""
        raise NotImplementedError

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


def plain_cell(value: Any) -> Any:
    """A value for one cell; lists and mappings become JSON."""
    return orjson.dumps(value).decode() if isinstance(value, (list, tuple, dict)) else value


def clean(text: str) -> str:
    """Replace every unprintable or reordering character by a visible symbol."""
    return _UNPRINTABLE.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"[U+{code:04X}]"


def escaped(text: object) -> str:
    """HTML that shows the text as it is."""
    return html.escape(clean(str(text)))


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells are all escaped."""
    rest = "".join(_row("td", row) for row in rows)
    table = f"<table><thead>{_row('th', head)}</thead><tbody>{rest}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind} style={_CELL}>{escaped(each)}</{kind}>' for each in cells)}</tr>"


def html_list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(each)}</li>' for each in sentences)}</ul>"


def html_folded(title: str, content: str, *, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escaped(title)}</summary>{content}</details>"
