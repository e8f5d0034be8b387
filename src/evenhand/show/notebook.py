"""A study as Python callers get it: a short text, a table and a chart in a notebook, data frames, the report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from time import monotonic
from typing import Any

from evenhand.core.errors import UsageError, check_names, needs_extra
from evenhand.core.files import write_bytes, write_text
from evenhand.core.format import DASH, count, finite, interval, money, number, plural
from evenhand.core.progress import Observer, Progress
from evenhand.core.untrusted import clean
from evenhand.show.chart import Axis, Lane, axis_for
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import details, sentences
from evenhand.show.sections.comparison import effect_table
from evenhand.show.sections.overview import meaning_html
from evenhand.show.table import Content, Table, Tabular, columns, latex, measured, notebook_html
from evenhand.show.view import View, lead_lanes, look_of, metric_hint, metric_lanes, metric_title, total_usage, view_of
from evenhand.studies.export import TABLES, table_rows
from evenhand.studies.results import ArmResult, Finding, StudyResult, estimate_text, few_clusters
from evenhand.studies.samples import shown_samples

_MOST_ARMS = 12
"""In the short text; the table and the chart have all."""
_LANE, _WIDTH, _LEFT, _RIGHT = 26, 720, 240, 560
_LONGEST_LABEL = 34
_COLOUR = "#0b8a7d"
_COLOURS = {"worse": "#c62f39", "better": "#0b8a7d"}
"""Readable on white and on black."""


@dataclass(frozen=True, slots=True, repr=False)
class Study(StudyResult, Tabular):
    """What a study of stored runs found: `verdicts` in sentences, numbers in `arms`, differences in `effects`."""

    runs: Sequence[Path] = ()
    counted: Sequence[str] = ()
    """The scorers that were named instead of the planned ones."""

    def __repr__(self) -> str:
        view = view_of(self)
        lines = [f"Study of {self.benchmark}, {plural(len(view.whole_arms), 'arm')}"]
        lines += [finding.sentence for finding in self.findings[:1]]
        lines.append(view.headline.title)
        lines += [f"  {arm.label}: {_headline(view, arm)}" for arm in view.whole_arms[:_MOST_ARMS]]
        if len(view.whole_arms) > _MOST_ARMS:
            lines.append(f"  … and {len(view.whole_arms) - _MOST_ARMS} more")
        return clean("\n".join(lines))

    def _repr_html_(self) -> str:
        return study_html(self)

    def rows(self, table: str = "metrics") -> list[dict[str, Any]]:
        """The rows of `metrics`, `effects`, `outcomes`, `turns` or `evidence`, as `evenhand run export` writes them."""
        if (table := table or "metrics") not in TABLES:
            raise UsageError(f"A study has no table {table!r}; it has {', '.join(TABLES)}.")
        return table_rows(self, self.runs, table)

    def figure(self, metric: str | None = None) -> Figure:
        """A metric of every arm with its interval, by default that of the first finding; shows itself in a notebook."""
        check_names("metric", [each.name for each in self.metrics], *filter(None, [metric]))
        return Figure(str(lead_chart(view_of(self), metric)))

    def to_latex(self, table: str = "metrics", *, label: str = "") -> str:
        """The main metrics of each arm (`metrics`) or the paired differences (`effects`) as a table for a paper."""
        if table not in LATEX_TABLES:
            raise UsageError(f"LaTeX is written of {' and '.join(LATEX_TABLES)}, not of {table}.")
        return latex(_arms(view_of(self)) if table == "metrics" else effect_table(self), label)

    def save(self, path: str | Path, *, samples: int = 300) -> Path:
        """Write the HTML report, with up to `samples` samples in it."""
        from evenhand.show.report import write_report

        target = html_file(path)
        write_report(self, shown_samples(list(self.runs), samples, scorers=self.counted), target)
        return target


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart as SVG: shows itself in a notebook, and is saved as .svg or .png."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path, *, width: int = 2160) -> Path:
        """Write the figure; a PNG file is `width` pixels wide and needs the extra `figures`."""
        target = Path(path)
        # Files have no page around them: black on white, in a font that is there.
        plain = self.svg.replace("currentColor", "#000").replace("max-width:100%;font:13px sans-serif", "")
        plain = plain.replace("<svg", '<svg font-family="Helvetica, Arial, sans-serif" font-size="13"', 1)
        match target.suffix.lower():
            case ".svg":
                write_text(target, plain)
            case ".png":
                with needs_extra("figures in PNG", "figures"):
                    from resvg_py import svg_to_bytes
                write_bytes(target, bytes(svg_to_bytes(svg_string=plain, width=width, background="white")))
            case _:
                raise UsageError(f"A figure is saved as .svg or .png, not as {target.name}.")
        return target


LATEX_TABLES = ("metrics", "effects")


_EVERY_SECONDS = 0.5


def watching() -> Observer | None:
    """In a notebook, an observer that shows a run's progress as a bar below the cell; elsewhere None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display  # pyright: ignore

    handle: Any = display(Progress(), display_id=True)  # pyright: ignore
    shown = 0.0

    def watch(progress: Progress) -> None:
        nonlocal shown
        if progress.done == progress.total or monotonic() - shown > _EVERY_SECONDS:
            shown = monotonic()
            handle.update(progress)

    return watch


def study_of(result: StudyResult, runs: Sequence[Path], counted: Sequence[str]) -> Study:
    values = {each.name: getattr(result, each.name) for each in fields(StudyResult)}
    return Study(**values, runs=tuple(runs), counted=tuple(counted))


def html_file(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"A report is an HTML file; write save('{target.with_suffix('.html')}').")
    return target


def study_html(study: StudyResult) -> str:
    """Findings, chart, table, warnings and notes, without a stylesheet."""
    view = view_of(study)
    count_of = plural(len(study.warnings), "warning")
    return tag(
        "div",
        tag("p", tag("b", study.title)),
        [_finding(finding) for finding in study.findings],
        meaning_html(study),
        [tag("p", tag("b", caveat)) for caveat in study.caveats],
        lead_chart(view),
        notebook_html(_arms(view)),
        details(count_of, sentences(study.warnings, None), is_open=True) if study.warnings else None,
        details(plural(len(study.notes), "note"), sentences(study.notes, None)) if study.notes else None,
    )


def _finding(finding: Finding) -> Html:
    colour = _COLOURS.get(look_of(finding.verdict))
    word = tag("b", f"{finding.symbol} {finding.word}:", style=f"color:{colour}" if colour else None)
    detail = [" ", tag("small", finding.detail)] if finding.detail else None
    return tag("p", word, f" {finding.text}.", detail)


def _headline(view: View, arm: ArmResult) -> str:
    return estimate_text(arm.estimate(view.headline.name), view.digits[view.headline.name])


def _arms(view: View) -> Table:
    """The main metrics of each arm, n of the headline, calls and money."""
    rows: list[list[Content]] = []
    for arm in view.arms:
        headline, used = arm.estimate(view.headline.name), total_usage(arm)
        found = [(metric, arm.estimate(metric.name)) for metric in view.main_metrics]
        shown = [measured(e.value, e.low, e.high, view.digits[m.name]) if e else DASH for m, e in found]
        n = f"{count(headline.n)}{few_clusters(headline)}" if headline else "0"
        rows.append([arm.label, *shown, n, count(used.calls), money(used.cost)])
    titles = [metric_title(metric) for metric in view.main_metrics]
    return Table(view.study.title, columns("Arm", *titles, "n", "Calls", "Money"), rows)


def lead_chart(view: View, name: str | None = None) -> Html:
    """The metric of the first finding, or the one that is named, with the interval of every arm."""
    metric, found = lead_lanes(view) if name is None else metric_lanes(view, name)
    values = [value for _, lane in found for value in (lane.value, lane.low, lane.high)]
    if not any(finite(value) is not None for value in values):
        return Html("")
    axis = axis_for(values, include_zero=metric.better == "zero", reference=metric.chance)
    height = _LANE * (len(found) + 2)
    hint = metric_hint(metric)
    return tag(
        "svg",
        _label(metric_title(metric) + (f" ({hint})" if hint else ""), 0, 16, bold=True),
        [_tick(axis, tick, height) for tick in axis.ticks],
        [
            _lane(axis, arm, lane, _LANE * (place + 1.5), view.digits[metric.name])
            for place, (arm, lane) in enumerate(found)
        ],
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
        role="img",
        aria_label=f"{metric.title} by arm",
        style="max-width:100%;font:13px sans-serif",
    )


def _x(axis: Axis, value: float) -> str:
    return f"{_LEFT + (_RIGHT - _LEFT) * axis.fraction(value):.1f}"


def _label(text: str, x: float | str, y: float, *, bold: bool = False, anchor: str | None = None) -> Html:
    weight = "bold" if bold else None
    return tag("text", text, x=x, y=f"{y:g}", fill="currentColor", font_weight=weight, text_anchor=anchor)


def _tick(axis: Axis, tick: float, height: float) -> list[Node]:
    x = _x(axis, tick)
    strength = "0.6" if tick == 0 else "0.15"
    line = tag("line", x1=x, x2=x, y1=_LANE, y2=height - _LANE, stroke="currentColor", stroke_opacity=strength)
    return [line, _label(number(tick, axis.digits), x, height - 8, anchor="middle")]


def _lane(axis: Axis, arm: ArmResult, lane: Lane, y: float, digits: int) -> list[Node]:
    label = arm.label if len(arm.label) <= _LONGEST_LABEL else f"{arm.label[: _LONGEST_LABEL - 1]}…"
    value, low, high = finite(lane.value), finite(lane.low), finite(lane.high)
    shown = interval(value, low, high, digits)
    parts: list[Node] = [_label(label, 0, y + 4), _label(shown, _RIGHT + 14, y + 4)]
    if low is not None and high is not None:
        ends = {"x1": _x(axis, low), "x2": _x(axis, high), "y1": f"{y:g}", "y2": f"{y:g}"}
        parts.append(tag("line", **ends, stroke=_COLOUR, stroke_width=2))
    if value is not None:
        circle = {"cx": _x(axis, value), "cy": f"{y:g}", "r": 5}
        parts.append(tag("circle", tag("title", lane.text), **circle, fill=_COLOUR))
    return parts
