"""The sections on answers: expected and given kinds, and whether the position of an option mattered."""

from __future__ import annotations

from evenhand.core.format import count, number, p_statement, plural, share
from evenhand.show.charts import FEW, arm_class, bar
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import arm_name, scrolling, section
from evenhand.show.view import View
from evenhand.studies.results import ArmResult, PositionBias

_LAST = ("refused", "cut", "unscored", "failed")
_HEAT_STEPS = 10
_SIGNIFICANT = 0.05


def confusion(view: View) -> Html:
    """Return a heat table per arm."""
    arms = [arm for arm in view.arms if arm.confusion]
    title = "Expected and given answers"
    given = _columns(arms)
    lead = "Rows: the correct kind of answer. Columns: the kind that was given. "
    lead += "Each row adds up to 100%; outlined cells are correct answers."
    return section(
        "answers", title, lead, tag("div", [_heat(view, arm, given) for arm in arms], class_="multiples tables")
    )


def _columns(arms: list[ArmResult]) -> list[str]:
    """Return every kind that occurs: expected kinds first, kinds of missing answers last."""
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
    """Return bars per position and arm."""
    arms = [(arm, arm.position) for arm in view.arms if arm.position is not None]
    title = "Position of the chosen option"
    lead = "The options are shuffled for every sample, so a model without position bias picks each position "
    lead += "equally often (the vertical line). A preference for one position is noise that can look like social bias."
    panels = [_positions(view, arm, bias) for arm, bias in arms]
    return section("position", title, lead, tag("div", panels, class_="multiples narrow"))


def _positions(view: View, arm: ArmResult, bias: PositionBias) -> Html:
    total = sum(bias.counts)
    even = 1 / len(bias.counts) if bias.counts else None
    rows: list[Node] = []
    for i, n in enumerate(bias.counts):
        label = f"{arm.label}, position {i + 1}: {share(n, total)}, {count(n)} of {count(total)}"
        picture = bar(n / total if total else 0.0, even, arm_class(view.arm_index(arm.id)), label)
        value = tag("span", share(n, total), tag("small", count(n)), class_="bar-value")
        rows.append(tag("div", tag("span", f"Position {i + 1}"), picture, value, class_="bar-row"))
    return tag(
        "figure",
        tag("figcaption", arm_name(view, arm)),
        rows,
        tag("p", _sentence(bias, total), class_="footnote"),
    )


def _sentence(bias: PositionBias, total: int) -> str:
    numbers = f" Distance from an even choice: {number(bias.distance, 3)} (0 is even, 1 is the maximum), "
    numbers += f"{p_statement(bias.p_value)}, {plural(total, 'choice')}."
    if bias.p_value is None or total < FEW:
        return "Too few choices to say whether position mattered." + numbers
    if bias.p_value < _SIGNIFICANT:
        return "This arm prefers some positions, whatever option they hold." + numbers
    return "No preference for a position was detected." + numbers
