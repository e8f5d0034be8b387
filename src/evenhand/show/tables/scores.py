"""Terminal tables of scores and of the agreement of scorers; the HTML report has the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evenhand.core.format import count, interval, number, share
from evenhand.runs.scores import Means
from evenhand.show.tables import plain_table, safe_text
from evenhand.studies.results import Agreement, AgreementRow

if TYPE_CHECKING:
    from rich.table import Table

_SHORT = {"Same side of 0.5": "Same side", "Kappa at 0.5": "Kappa"}
"""Short column names for the terminal; the table's title explains them."""
AGREEMENT_COLUMNS = ("n", "Pearson", "Spearman", "Mean difference", "Same side of 0.5", "Kappa at 0.5")


def mean_table(scorer: str, attributes: Sequence[str], arms: Mapping[int, str], means: Mapping[int, Means]) -> Table:
    """Return one column per arm: the means over its final answers, and the number of scored answers."""
    table = plain_table(f"Means of the final answers by {scorer}")
    table.add_column("")
    for label in arms.values():
        table.add_column(safe_text(label), justify="right", overflow="fold")
    columns = [means.get(arm, Means()) for arm in arms]
    for name in attributes:
        table.add_row(safe_text(name), *(number(each.mean(name), 3) for each in columns))
    table.add_section()
    table.add_row("scored", *(count(each.graded) for each in columns))
    table.add_row("unscored", *(count(each.unscored) for each in columns))
    return table


def agreement_table(agreement: Agreement) -> Table:
    """Return one row per attribute that both scorers give."""
    table = plain_table(f"Agreement of {agreement.first} and {agreement.second} on the final answers (sides of 0.5)")
    table.add_column("", no_wrap=True)
    for name in AGREEMENT_COLUMNS:
        table.add_column(_SHORT.get(name, name), justify="right")
    for row in agreement.rows:
        table.add_row(safe_text(row.attribute), *agreement_cells(row))
    return table


def agreement_cells(row: AgreementRow) -> list[str]:
    """Return the cells of a row, one for each of AGREEMENT_COLUMNS."""
    return [
        count(row.n),
        number(row.pearson, 3),
        number(row.spearman, 3),
        interval(row.difference, row.low, row.high, 3),
        share(round(row.same_side * row.n), row.n),
        number(row.kappa, 3),
    ]
