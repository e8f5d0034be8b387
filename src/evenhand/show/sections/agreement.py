"""The section on agreement between scorers, as tables and charts."""

from __future__ import annotations

from evenhand.core.format import count, number, plural
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import section, table
from evenhand.show.tables.cells import cell_chart
from evenhand.show.tables.scores import AGREEMENT_COLUMNS, agreement_cells
from evenhand.show.view import View
from evenhand.studies.results import Agreement


def agreement(view: View) -> Html:
    """Return one block per pair of scorers."""
    lead = "Scores of different scorers are never mixed; this section shows whether the scorers agree. Both scored the "
    lead += "same final answers of all arms. The mean difference is the second scorer minus the first: a difference in "
    lead += "calibration. Kappa is agreement beyond chance; it is a dash if both put all answers on the same side."
    return section("agreement", "Do the scorers agree?", lead, [_pair(each) for each in view.study.agreements])


def _pair(pair: Agreement) -> Html:
    head: list[Node] = ["Attribute", *AGREEMENT_COLUMNS]
    rows: list[list[Node]] = [[row.attribute.replace("_", " "), *agreement_cells(row)] for row in pair.rows]
    title = f"{pair.first} and {pair.second}"
    return tag("div", tag("h3", title), table(head, rows, f"Agreement of {title}", "numbers"), _chart(pair))


def _chart(pair: Agreement) -> Html:
    row = pair.rows[0]
    attribute = row.attribute.replace("_", " ")
    label = f"{attribute.capitalize()} of {plural(row.n, 'answer')} by {pair.second} against {pair.first}: "
    label += f"Pearson {number(row.pearson, 3)}, {count(round(row.same_side * row.n))} on the same side of 0.5."
    note = f"Answers are counted in {pair.grid} × {pair.grid} cells. The area of a disc is the number of answers; the "
    note += f"largest disc is {plural(max(n for _, _, n in pair.cells), 'answer')}. "
    note += "On the dashed diagonal both scores are equal; the thin lines are at 0.5."
    return tag(
        "figure",
        tag("p", f"↑ {attribute} by {pair.second}", class_="axis-title"),
        cell_chart(pair.cells, pair.grid, label),
        tag("p", f"{attribute} by {pair.first} →", class_="axis-title below"),
        tag("p", note, class_="footnote"),
        class_="agreement",
    )
