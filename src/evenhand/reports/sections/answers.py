"""What was answered: kinds of answers expected and given, and whether the shown position mattered."""

from __future__ import annotations

from evenhand.reports.charts import arm_class, bar
from evenhand.reports.format import count, number, p_statement, plural, share
from evenhand.reports.markup import Html, Node, tag
from evenhand.reports.sections.elements import arm_name, scrolling, section
from evenhand.reports.view import View
from evenhand.studies.results import ArmResult, PositionBias

_LAST = ("refused", "unscored", "failed")
_HEAT_STEPS = 10
_SURPRISING = 0.05


def confusion(view: View) -> Html:
    """A heat table per arm."""
    arms = [arm for arm in view.arms if arm.confusion]
    title = "Expected and given answers"
    given = _columns(arms)
    lead = "Rows: the kind of answer that was right. Columns: the kind that was given. "
    lead += "Each row adds up to 100%; outlined cells are right answers."
    return section(
        "answers", title, lead, tag("div", [_heat(view, arm, given) for arm in arms], class_="multiples tables")
    )


def _columns(arms: list[ArmResult]) -> list[str]:
    """Every kind that occurs: expected kinds first, the ways of not answering last."""
    kinds = dict.fromkeys(kind for arm in arms for kind in arm.confusion)
    kinds |= dict.fromkeys(kind for arm in arms for row in arm.confusion.values() for kind in row)
    return [k for k in kinds if k not in _LAST] + [k for k in _LAST if k in kinds]


def _heat(view: View, arm: ArmResult, given: list[str]) -> Html:
    head = tag("tr", tag("th", "expected", class_="corner"), [tag("th", _kind(k), scope="col") for k in given])
    rows: list[Node] = []
    for expected in (kind for kind in given if kind in arm.confusion):
        counts = arm.confusion[expected]
        total = sum(counts.values())
        cells = [_cell(expected, kind, counts.get(kind, 0), total) for kind in given]
        header = tag("th", _kind(expected), tag("small", f"n = {count(total)}"), scope="row")
        rows.append(tag("tr", header, cells))
    body = tag("table", tag("thead", head), tag("tbody", rows), class_="heat")
    name = tag("figcaption", arm_name(view, arm))
    return tag("figure", name, scrolling(body, f"{arm.label}: expected and given answers"))


def _cell(expected: str, given: str, n: int, total: int) -> Html:
    step = round(_HEAT_STEPS * n / total) if total else 0
    right = " right" if expected == given else ""
    return tag("td", share(n, total, 0), tag("small", count(n)), class_=f"heat-{step}{right}")


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


def position(view: View) -> Html:
    """Bars per shown position and arm."""
    arms = [(arm, arm.position) for arm in view.arms if arm.position is not None]
    title = "Position of the chosen option"
    lead = "The options are shuffled for every sample, so a reader without a habit picks each position "
    lead += "equally often (the upright line). A lasting preference for one position is noise that can look like bias."
    panels = [_positions(view, arm, found) for arm, found in arms]
    return section("position", title, lead, tag("div", panels, class_="multiples narrow"))


def _positions(view: View, arm: ArmResult, found: PositionBias) -> Html:
    total = sum(found.counts)
    even = 1 / len(found.counts) if found.counts else None
    rows: list[Node] = []
    for i, n in enumerate(found.counts):
        label = f"{arm.label}, position {i + 1}: {share(n, total)}, {count(n)} of {count(total)}"
        picture = bar(n / total if total else 0.0, even, arm_class(view.arm_index(arm.id)), label)
        value = tag("span", share(n, total), tag("small", count(n)), class_="bar-value")
        rows.append(tag("div", tag("span", f"Position {i + 1}"), picture, value, class_="bar-row"))
    return tag(
        "figure",
        tag("figcaption", arm_name(view, arm)),
        rows,
        tag("p", _sentence(found, total), class_="footnote"),
    )


def _sentence(found: PositionBias, total: int) -> str:
    numbers = f"{number(found.distance, 3)} away from even (0 is even, 1 the most), {p_statement(found.p_value)}, "
    numbers += f"{plural(total, 'choice')}. "
    if found.p_value is None:
        return numbers + "Too little to say whether position mattered."
    if found.p_value < _SURPRISING:
        return numbers + "This arm prefers some positions, whatever they hold."
    return numbers + "No preference for a position shows."
