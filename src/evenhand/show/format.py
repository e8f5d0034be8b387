"""Number formats of the terminal tables and the HTML report; an undefined value is a dash, never 0."""

from __future__ import annotations

import math
from collections.abc import Iterable

from evenhand.studies.results import Effect, Estimate, MetricInfo, StudyResult

DASH = "–"
MINUS = "−"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def finite(value: float | None) -> float | None:
    """Return the value, or None if it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


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


def estimate_text(estimate: Estimate | None, digits: int = 1) -> str:
    """An estimate as text: `12.3 [4.5, 20.1], n = 482`, or `2 of 3`."""
    if estimate is None:
        return f"{DASH}, n = 0"
    if estimate.as_count is not None:
        return estimate.as_count
    return f"{interval(estimate.value, estimate.low, estimate.high, digits)}, {size(estimate)}"


def size(of: Estimate | Effect) -> str:
    """What an interval rests on: `n = 482`, or `n = 40, only 5 clusters`."""
    return f"n = {count(of.n)}{few_clusters(of)}"


def few_clusters(of: Estimate | Effect) -> str:
    """`, only 5 clusters`, or nothing if there are enough."""
    return f", only {plural(of.clusters or 0, 'cluster')}" if of.few_clusters else ""


def digits_for(info: MetricInfo, estimates: Iterable[Estimate]) -> int:
    """Return the decimals for all values of a metric: one for percentages, otherwise by size."""
    if info.share:
        return 1
    values = (finite(v) for e in estimates for v in (e.value, e.low, e.high))
    largest = max((abs(v) for v in values if v is not None), default=10.0)
    return 1 if largest >= 10 else 2 if largest >= 1 else 3


def count(n: int) -> str:
    """`12,345`."""
    return f"{n:,}"


def share(part: int, whole: int, digits: int = 1) -> str:
    """`82.1%`; a dash if the whole is 0."""
    return f"{100 * part / whole:.{digits}f}%" if whole else DASH


def money(cost: float | None) -> str:
    """Dollars; a dash when the price of some calls is not known."""
    cost = finite(cost)
    if cost is None:
        return DASH
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


def p_value(p: float | None) -> str:
    """`0.032`, `<0.001`; a dash when there was no test."""
    p = finite(p)
    if p is None:
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_statement(p: float | None) -> str:
    """`p = 0.032`, `p < 0.001`, `no p-value`, with spaces that do not break."""
    text = p_value(p)
    if text == DASH:
        return "no p-value"
    return f"p\u00a0<\u00a0{text[1:]}" if text.startswith("<") else f"p\u00a0=\u00a0{text}"


def plural(n: int, noun: str) -> str:
    """`1 arm`, `3 arms`."""
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"


def headline_of(result: StudyResult) -> str:
    """The headline of every arm in a few words, for lists of runs."""
    metric = next(each for each in result.metrics if each.name == result.headline)
    found = [(arm, arm.estimate(metric.name)) for arm in result.arms if arm.iteration is None]
    values = [
        (f"{arm.label} " if len(found) > 1 else "") + interval(each.value, each.low, each.high)
        for arm, each in found
        if each is not None and each.value is not None
    ]
    return f"{metric.title}: {'; '.join(values)}" if values else ""
