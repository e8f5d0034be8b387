"""How numbers are written, in sentences, tables and charts alike; an undefined value is a dash, never 0."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import orjson

DASH = "–"
MINUS = "−"
NO_PRICE = "price unknown"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def finite(value: float | None) -> float | None:
    """Return the value, or None if it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def decimals(values: Iterable[float | None], *, share: bool = False) -> int:
    """Return the decimals for values that are read together: one for percentages, otherwise by the largest."""
    if share:
        return 1
    largest = max((abs(value) for value in map(finite, values) if value is not None), default=10.0)
    return 1 if largest >= 10 else 2 if largest >= 1 else 3


def number(value: float | None, digits: int = 1) -> str:
    """A number with a true minus sign: `−12.3`; a dash when undefined."""
    value = finite(value)
    if value is None:
        return DASH
    text = f"{abs(value):,.{digits}f}"
    is_zero = not text.strip("0.,")
    return text if value >= 0 or is_zero else MINUS + text


def signed(value: float | None, digits: int = 1) -> str:
    """A difference: `+3.2`, `−3.2`, `0.0`."""
    text = number(value, digits)
    value = finite(value)
    shows_gain = value is not None and value > 0 and text.strip("0.,")
    return "+" + text if shows_gain else text


def limits(low: float | None, high: float | None, digits: int = 1) -> str:
    """The interval alone: `[4.5, 20.1]`."""
    return (
        f"[{DASH}]"
        if finite(low) is None or finite(high) is None
        else f"[{number(low, digits)}, {number(high, digits)}]"
    )


def interval(value: float | None, low: float | None, high: float | None, digits: int = 1) -> str:
    """A number with its interval: `12.3 [4.5, 20.1]`; a dash when undefined."""
    return DASH if finite(value) is None else f"{number(value, digits)} {limits(low, high, digits)}"


def difference(value: float | None, low: float | None, high: float | None, digits: int = 1) -> str:
    """A difference with its interval: `+3.2 [1.0, 5.4]`; a dash when undefined."""
    return DASH if finite(value) is None else f"{signed(value, digits)} {limits(low, high, digits)}"


def count(n: int) -> str:
    """`12,345`."""
    return f"{n:,}"


def plural(n: int, noun: str) -> str:
    """`1 arm`, `3 arms`."""
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"


def percent(fraction: float | None, digits: int = 1) -> str:
    """`82.1 %` of a fraction from 0 to 1; a dash when undefined."""
    fraction = finite(fraction)
    return DASH if fraction is None else f"{number(100 * fraction, digits)} %"


def share(part: int, whole: int, digits: int = 1) -> str:
    """`82.1 %`; a dash if the whole is 0."""
    return percent(part / whole if whole else None, digits)


def p_value(p: float | None) -> str:
    """`0.032`, `<0.001`; a dash when there was no test."""
    p = finite(p)
    if p is None:
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_statement(p: float | None) -> str:
    """`p = 0.032`, `p < 0.001`, `no p-value`."""
    text = p_value(p)
    if text == DASH:
        return "no p-value"
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def money(cost: float | None, unknown: str = DASH) -> str:
    """Dollars; `unknown` when the price of some calls is not known."""
    cost = finite(cost)
    if cost is None:
        return unknown
    return "<$0.01" if 0 < cost < 0.005 else f"${cost:,.2f}"


def duration(seconds: float | None) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    seconds = finite(seconds)
    if seconds is None:
        return DASH
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, below, small in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name} {rest} {small}" if rest else f"{whole // size} {name}"
    return f"{whole} s"


def doc_line(thing: object) -> str:
    """The first line of what a thing's docstring says."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""How a cell begins that a spreadsheet runs as a formula; the wide signs count in some languages."""


def is_formula(text: str) -> bool:
    return text.lstrip(" \n").startswith(_FORMULAS)


def plain_text(text: str) -> str:
    """A text for a cell of a file that spreadsheets open: one that they would run as a formula gets a quote."""
    return f"'{text}" if is_formula(text) else text


def plain_cell(value: Any) -> Any:
    """A value for one cell of a data frame or file; lists and mappings become JSON."""
    return orjson.dumps(value).decode() if isinstance(value, (list, tuple, dict)) else value


def file_size(octets: int) -> str:
    """`3.4 MB`, `1.2 GB`."""
    return f"{octets / 1e9:.1f} GB" if octets >= 1e9 else f"{octets / 1e6:.1f} MB"
