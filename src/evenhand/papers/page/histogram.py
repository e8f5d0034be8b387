"""Histograms of a paper's page: one small chart per bar of the figure, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import finite, number
from evenhand.papers.base import Bar, Figure
from evenhand.show.charts import arm_class
from evenhand.show.markup import Html, Node, tag
from evenhand.studies.results import estimate_text

_HEIGHT = 120
_ABOVE, _BELOW = 18, 22
"""Space for the number above a column and the bin's name below it."""
_FILL = 0.7
"""The share of a bin's width that its column fills."""
_FIRST_COLOUR = 1


def histograms(figure: Figure) -> Html:
    """Returns the charts side by side; each setting has one colour."""
    settings = list(dict.fromkeys(bar.setting for bar in figure.bars))
    highest = max((finite(part.value) or 0.0 for bar in figure.bars for part in bar.parts), default=0.0)
    charts = [_chart(figure.parts, bar, settings.index(bar.setting), highest or 100.0) for bar in figure.bars]
    return tag("div", charts, class_="multiples")


def _chart(bins: Sequence[str], bar: Bar, colour: int, highest: float) -> Html:
    texts = [f"{name}: {estimate_text(part)}" for name, part in zip(bins, bar.parts, strict=True)]
    columns = [
        _column(i, len(bins), name, finite(part.value) or 0.0, highest, text)
        for i, (name, part, text) in enumerate(zip(bins, bar.parts, texts, strict=True))
    ]
    ground = _ABOVE + _HEIGHT
    line = tag("line", x1="0%", x2="100%", y1=ground, y2=ground, class_="notch")
    chart = tag(
        "svg",
        columns,
        line,
        class_=f"histogram {arm_class(_FIRST_COLOUR + colour)}",
        width="100%",
        height=ground + _BELOW,
        role="img",
        aria_label=f"{bar.name}, {bar.setting}. {'; '.join(texts)}",
    )
    n = max(part.n for part in bar.parts)
    caption = tag("figcaption", tag("strong", bar.name), f" {bar.setting}, n = {n:,}")
    return tag("figure", caption, chart)


def _column(index: int, of: int, name: str, value: float, highest: float, text: str) -> Html:
    """Returns a bin's column with its share above and its short name below."""
    middle = f"{100 * (index + 0.5) / of:.2f}%"
    height = _HEIGHT * value / highest
    top = _ABOVE + _HEIGHT - height
    parts: list[Node] = [tag("title", text)]
    if value:
        left, width = 100 * (index + (1 - _FILL) / 2) / of, 100 * _FILL / of
        parts.append(tag("rect", x=f"{left:.2f}%", y=f"{top:.1f}", width=f"{width:.2f}%", height=f"{height:.1f}"))
    parts.append(tag("text", number(value, 0), x=middle, y=f"{top - 5:.1f}", class_="middle"))
    parts.append(tag("text", _short(name), x=middle, y=_ABOVE + _HEIGHT + 16, class_="tick middle"))
    return tag("g", parts)


def _short(name: str) -> str:
    """Shortens `−3 or less` to `≤ −3`."""
    value, _, more = name.partition(" or ")
    return {"less": f"≤\u00a0{value}", "more": f"≥\u00a0{value}"}.get(more, name)
