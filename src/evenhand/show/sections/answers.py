"""The sections on answers: expected and given kinds, the position of the chosen option, and how scorers agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenhand.core.format import count, number, p_statement, plural, share
from evenhand.runs.scores import Means
from evenhand.show.chart import FEW, arm_class, bar, cell_chart
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import footnote, section
from evenhand.show.table import Cell, Column, Content, Table, columns, heat, html_of, interval_cell
from evenhand.show.view import View, arm_name
from evenhand.stats import ScoreAgreement
from evenhand.studies.results import Agreement, ArmResult, PositionBias

_LAST = ("refused", "cut", "unscored", "failed")
_SIGNIFICANT = 0.05
AGREEMENT_COLUMNS = ("n", "Spearman", "Mean difference", "Same side of 0.5, %", "Kappa at 0.5")
_SHORT = {"Same side of 0.5, %": "Same side, %", "Kappa at 0.5": "Kappa"}
"""Short column names for the terminal; the table's title explains them."""


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
    rows: list[list[Content]] = []
    for expected in (kind for kind in given if kind in arm.confusion):
        counts = arm.confusion[expected]
        total = sum(counts.values())
        cells = [heat(counts.get(kind, 0), total, right=kind == expected) for kind in given]
        rows.append([Cell(_kind(expected), notes=(f"n = {count(total)}",)), *cells])
    heads = [Column("expected", look="corner"), *(Column(_kind(kind)) for kind in given)]
    table = Table(f"{arm.label}: expected and given answers", heads, rows, look="heat")
    return tag("figure", tag("figcaption", arm_name(view, arm)), html_of(table))


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


def position(view: View) -> Html:
    """Return bars per position and arm."""
    arms = [(arm, arm.position) for arm in view.arms if arm.position is not None]
    title = "Position of the chosen option"
    lead = "The options are shuffled for every sample, so a model without position bias picks each position as often "
    lead += "as the vertical line shows. A preference for one position is noise that can look like social bias."
    panels = [_positions(view, arm, bias) for arm, bias in arms]
    return section("position", title, lead, tag("div", panels, class_="multiples narrow"))


def _positions(view: View, arm: ArmResult, bias: PositionBias) -> Html:
    total = sum(bias.counts)
    expected = bias.expected or (total / max(1, len(bias.counts)),) * len(bias.counts)
    rows: list[Node] = []
    for i, n in enumerate(bias.counts):
        label = f"{arm.label}, position {i + 1}: {share(n, total)}, {count(n)} of {count(total)}"
        even = expected[i] / total if total else None
        picture = bar(n / total if total else 0.0, even, arm_class(view.arm_index(arm.id)), label)
        value = tag("span", share(n, total), tag("small", count(n)), class_="bar-value")
        rows.append(tag("div", tag("span", f"Position {i + 1}"), picture, value, class_="bar-row"))
    return tag("figure", tag("figcaption", arm_name(view, arm)), rows, footnote(_sentence(bias, total)))


def _sentence(bias: PositionBias, total: int) -> str:
    numbers = f" Distance from an even choice: {number(bias.distance, 3)} (0 is even, 1 is the maximum), "
    numbers += f"{p_statement(bias.p_value)}, {plural(total, 'choice')}."
    if bias.p_value is None or total < FEW:
        return "Too few choices to say whether position mattered." + numbers
    if bias.p_value < _SIGNIFICANT:
        return "This arm prefers some positions, whatever option they hold." + numbers
    return "No preference for a position was detected." + numbers


# --- scorers ---


def agreement(view: View) -> Html:
    """Return one block per pair of scorers."""
    lead = "Scores of different scorers are never mixed; this section shows whether the scorers agree. Both scored the "
    lead += "same final answers of all arms. The mean difference is the second scorer minus the first: a difference in "
    lead += "calibration. Kappa is agreement beyond chance; it is a dash if both put all answers on the same side."
    return section("agreement", "Do the scorers agree?", lead, [_pair(each) for each in view.study.agreements])


def _pair(pair: Agreement) -> Html:
    title = f"{pair.first} and {pair.second}"
    return tag("div", tag("h3", title), html_of(agreement_table(pair.first, pair.second, pair.rows)), _chart(pair))


def _chart(pair: Agreement) -> Html:
    row = pair.rows[0]
    attribute = row.attribute.replace("_", " ")
    label = f"{attribute.capitalize()} of {plural(row.n, 'answer')} by {pair.second} against {pair.first}: "
    same = number(100 * (row.same_side.estimate or 0), 1)
    label += f"Spearman {number(row.spearman.estimate, 3)}, {same} % on the same side of 0.5."
    note = f"Answers are counted in {pair.grid} × {pair.grid} cells. The area of a disc is the number of answers; the "
    note += f"largest disc is {plural(max(n for _, _, n in pair.cells), 'answer')}. "
    note += "On the dashed diagonal both scores are equal; the thin lines are at 0.5."
    return tag(
        "figure",
        tag("p", f"↑ {attribute} by {pair.second}", class_="axis-title"),
        cell_chart(pair.cells, pair.grid, label),
        tag("p", f"{attribute} by {pair.first} →", class_="axis-title below"),
        footnote(note),
        class_="agreement",
    )


def agreement_table(first: str, second: str, rows: Sequence[ScoreAgreement]) -> Table:
    """Return one row per attribute that both scorers give."""
    title = f"Agreement of {first} and {second} on the texts that both scored (sides of 0.5)"
    heads = [Column(name, numeric=True, short=_SHORT.get(name, "")) for name in AGREEMENT_COLUMNS]
    return Table(title, [Column("Attribute"), *heads], [_agreement_row(row) for row in rows])


def _agreement_row(row: ScoreAgreement) -> list[Content]:
    return [
        row.attribute.replace("_", " "),
        count(row.n),
        interval_cell(row.spearman, digits=3),
        interval_cell(row.difference, digits=3),
        interval_cell(row.same_side, 100),
        interval_cell(row.kappa, digits=3),
    ]


def mean_table(scorer: str, attributes: Sequence[str], arms: Mapping[int, str], means: Mapping[int, Means]) -> Table:
    """Return one column per arm: the means over its final answers, and the number of scored answers."""
    found = [means.get(arm, Means()) for arm in arms]
    rows: list[list[Content]] = [[name, *(number(each.mean(name), 3) for each in found)] for name in attributes]
    scored: list[list[Content]] = [
        ["scored", *(count(each.graded) for each in found)],
        ["unscored", *(count(each.unscored) for each in found)],
    ]
    title = f"Means of the final answers by {scorer}"
    return Table(title, columns("", *arms.values()), [*rows, *scored], ends=(len(rows) - 1,))
