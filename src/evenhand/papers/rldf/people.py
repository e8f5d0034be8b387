"""Tables 2 and 8 to 10 of the RLDF paper: what people's ratings say, and how far the raters agree."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.data.debates import BIASES
from evenhand.papers.base import Cell, Column, Grid, Row, Table
from evenhand.papers.rldf.arms import MODES, NAME, TITLES, own_arm
from evenhand.papers.rldf.ratings import Ratings
from evenhand.papers.rldf.tables import HINTS, METRICS, bias_columns, published_rows
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL

NOT_MEASURED = "not measured"
_THIS = "This model"
_AGREE = "Fleiss' kappa over three bands of the scale: 1 is perfect agreement, 0 what chance gives."


def people_tables(ratings: Ratings) -> list[Table]:
    """Returns all tables that people's ratings fill."""
    return [_table_two(ratings), _table_ten(ratings), _table_eight(ratings), _table_nine(ratings)]


def _table_two(ratings: Ratings) -> Table:
    return Table(
        "table2",
        "Table 2: the two modes, rated by people",
        "S-R: self-reflection, T-S: teacher-student; from 0 to 100. Ours are from a file ratings.json of `evenhand "
        "annotate import`, where it lies beside this page.",
        [_means(short, ratings, MODES, "table2", f", {short}") for short in METRICS],
    )


def _table_ten(ratings: Ratings) -> Table:
    return Table(
        "table10",
        "Table 10: all methods, rated by people",
        "From 0 to 100; the paper gives CE only.",
        [
            _means(short, ratings, _methods(ratings), *(("figure5", "") if short == "CE" else ("", "")))
            for short in METRICS
        ],
    )


def _table_eight(ratings: Ratings) -> Table:
    return Table("table8", "Table 8: agreement on the two modes", _AGREE, [_kappas(ratings, MODES, "table8")])


def _table_nine(ratings: Ratings) -> Table:
    return Table("table9", "Table 9: agreement on all methods", _AGREE, [_kappas(ratings, _methods(ratings), "table9")])


def _methods(ratings: Ratings) -> dict[str, str]:
    """Arm → title, of the paper's rows."""
    return {**TITLES, own_arm({arm for arm, _ in ratings}): NAME.upper()}


def _means(short: str, ratings: Ratings, arms: dict[str, str], table: str, ending: str) -> Grid:
    groups = [*BIASES, ALL]
    rows: list[Row] = []
    for arm, title in arms.items():
        found = ratings.get((arm, short))
        cells = [Cell(found.groups.get(group) if found else None) for group in groups]
        rows.append(Row(_THIS, title, cells, ours=found is not None, note="" if found else NOT_MEASURED))
    columns = [*bias_columns(HINTS[short]), Column(ALL, "All types", HINTS[short])]
    paper = published_rows(table, groups, ending) if table else []
    return Grid(short, columns, [*rows, *paper], "Model")


def _kappas(ratings: Ratings, arms: dict[str, str], table: str) -> Grid:
    rows: list[Row] = []
    for arm, title in arms.items():
        found = [ratings.get((arm, short)) for short in METRICS]
        cells = [Cell(_kappa(each.kappa, each.n) if each else None) for each in found]
        ours = any(found)
        rows.append(Row(_THIS, title, cells, ours=ours, note="" if ours else NOT_MEASURED))
    columns: Sequence[Column] = [Column(short, short, "1 is perfect") for short in METRICS]
    return Grid("Fleiss' kappa", columns, [*rows, *published_rows(table, list(METRICS))], "Model", digits=2)


def _kappa(value: float | None, n: int) -> Estimate | None:
    return None if value is None else Estimate("kappa", ALL, value, None, None, n)
