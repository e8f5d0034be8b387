"""Tables 1, 3 to 5, 13 and 14 and Figures 5 and 6 of the RLDF paper, from our arms and the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evenhand.benchmarks.opinions import opinion_scales
from evenhand.data.debates import BIASES
from evenhand.papers.base import Cell, Column, Grid, Row, Table, published
from evenhand.papers.rldf.arms import DEFAULT, LENGTH_RATIO, MODES, NAME, SELF, TEACHER, Arms
from evenhand.studies.tally import ALL

NOT_RUN = "not run"
CATEGORIES = {
    "Age": "Age",
    "Disability_status": "Disability",
    "Gender_identity": "Gender",
    "Nationality": "Nationality",
    "Physical_appearance": "Appearance",
    "Race_ethnicity": "Race",
}
"""The categories of BBQ in Table 1, and the paper's names for them."""
OVERALL = "all"
METRICS = {scale.short: scale.name for scale in opinion_scales()}
"""The paper's name of a scale → ours."""
HINTS = {"BS": "lower is better", "CE": "higher is better", "LS": "higher is better"}

Read = Callable[[str, str], Cell]
"""(arm, group) → our number."""
LENGTH = Column(LENGTH_RATIO, "Words, % of Default", "comparable: 60 to 160")
"""Beside every score of opinions: an arm that says far less than Default is not less biased."""


# --- BBQ ---


def table_one(arms: Arms, sentences: Sequence[str]) -> Table:
    """Returns accuracy by category, and BBQ's bias score."""
    grids = [
        Grid(
            "Accuracy",
            _categories("higher is better"),
            [
                *_method_rows(arms, _groups(CATEGORIES), lambda arm, group: our_cell(arms, arm, "accuracy", group)),
                *published_rows("table1", [*CATEGORIES, OVERALL]),
            ],
            "Model",
        ),
        _differences(arms, "accuracy", _categories("above 0 is better")),
    ]
    for context, title in (("ambig", "ambiguous"), ("disambig", "disambiguated")):
        metric = f"bias_{context}"

        def read(arm: str, group: str, metric: str = metric) -> Cell:
            return our_cell(arms, arm, metric, group)

        rows = _method_rows(arms, _groups(CATEGORIES), read)
        grids.append(Grid(f"BBQ's bias score, {title} contexts", _categories("0 is best"), rows, "Model"))
    return Table(
        "table1",
        "Table 1: BBQ by category",
        "Accuracy over both contexts, in per cent, for the six categories of the paper; intervals by template.",
        grids,
        sentences,
    )


def _categories(hint: str) -> list[Column]:
    columns = [Column(name, title, hint) for name, title in CATEGORIES.items()]
    return [*columns, Column(OVERALL, "Overall", hint)]


# --- opinions ---


def table_three(arms: Arms, sentences: Sequence[str]) -> Table:
    """Bias scores of all methods."""
    return _compared(
        arms,
        "BS",
        ("table3", "Table 3: bias score (BS)"),
        "How biased answers on topics are that training has not seen, from 0 to 100; intervals by topic.",
        sentences,
    )


def figure_five(arms: Arms) -> Table:
    """Communication effectiveness of all methods."""
    lead = "From 0 to 100. The paper has a picture; beside ours are its ratings by people (Table 10)."
    return _compared(arms, "CE", ("figure5", "Figure 5: communication effectiveness (CE)"), lead)


def figure_six(arms: Arms) -> Table:
    """Logical soundness of all methods."""
    lead = "From 0 to 100. The paper has a picture; beside ours are the numbers of its Table 11."
    return _compared(arms, "LS", ("figure6", "Figure 6: logical soundness (LS)"), lead)


def table_four(arms: Arms) -> Table:
    """The two modes, rated by the judge."""
    grids: list[Grid] = []
    for short, metric in METRICS.items():
        rows = [_mode_row(arms, arm, metric) for arm in MODES]
        found = [arms.difference(SELF, TEACHER, metric, group) for group in _groups(BIASES)]
        cells = [*(Cell(each.estimate if each else None) for each in found), Cell()]
        ours = SELF in arms and TEACHER in arms
        rows.append(Row(arms.model or "This model", "T-S less S-R", cells, ours, "" if ours else NOT_RUN))
        rows += published_rows("table4", [*BIASES, ALL, LENGTH_RATIO], f", {short}")
        grids.append(Grid(short, _opinion_columns(HINTS[short]), rows, "Model"))
    return Table(
        "table4",
        "Table 4: the two modes, rated by the judge",
        "S-R: the model debates with itself; T-S: a teacher debates. From 0 to 100; the difference is paired by topic.",
        grids,
    )


def teacher_tables(arms: Arms, teacher: str = "the teacher") -> list[Table]:
    """Returns BS, CE and LS of models trained with different teachers; `teacher` is that of the arm T-S."""
    return [
        _by_teacher(arms, teacher, short, names)
        for short, names in (
            ("BS", ("table5", "Table 5: teachers")),
            ("CE", ("table13", "Table 13: teachers, communication effectiveness")),
            ("LS", ("table14", "Table 14: teachers, logical soundness")),
        )
    ]


def _by_teacher(arms: Arms, teacher: str, short: str, names: tuple[str, str]) -> Table:
    teachers = {**({TEACHER: teacher} if TEACHER in arms else {}), **arms.teachers}
    rows = [Row(arms.model, name, _opinion_cells(arms, arm, METRICS[short])) for arm, name in teachers.items()]
    if not rows:
        cells = [Cell() for _ in _opinion_columns("")]
        rows = [Row(arms.model or "This model", "", cells, ours=False, note=NOT_RUN)]
    rows += published_rows(names[0], [*BIASES, ALL, LENGTH_RATIO])
    lead = (
        f"{short} of models that different teachers debated for, from 0 to 100; train them with several --teacher, or "
        "name them with --trained rldf:TEACHER=SPEC."
    )
    return Table(*names, lead, [Grid(short, _opinion_columns(HINTS[short]), rows, "Model")])


def _compared(arms: Arms, short: str, names: tuple[str, str], lead: str, sentences: Sequence[str] = ()) -> Table:
    """Returns one scale for all methods by type of bias, and the differences to Default."""
    metric = METRICS[short]
    rows = _method_rows(arms, [*_groups(BIASES), LENGTH_RATIO], lambda arm, group: _opinion(arms, arm, metric, group))
    better = "below 0 is better" if short == "BS" else "above 0 is better"
    changed = [*bias_columns(better), Column(ALL, "All types", better)]
    return Table(
        names[0],
        names[1],
        lead,
        [
            Grid(
                short,
                _opinion_columns(HINTS[short]),
                [*rows, *published_rows(names[0], [*BIASES, ALL, LENGTH_RATIO])],
                "Model",
                drawn=len(rows) if any(row.ours for row in rows) else 0,
                undrawn=1,
            ),
            _differences(arms, metric, changed),
        ],
        sentences,
    )


def bias_columns(hint: str) -> list[Column]:
    """Returns a column for each type of bias."""
    return [Column(bias, bias.capitalize(), hint) for bias in BIASES]


def _opinion_columns(hint: str) -> list[Column]:
    return [*bias_columns(hint), Column(ALL, "All types", hint), LENGTH]


def _opinion_cells(arms: Arms, arm: str, metric: str) -> list[Cell]:
    return [_opinion(arms, arm, metric, group) for group in (*_groups(BIASES), LENGTH_RATIO)]


def _opinion(arms: Arms, arm: str, metric: str, group: str) -> Cell:
    return Cell(arms.length_ratio(arm)) if group == LENGTH_RATIO else our_cell(arms, arm, metric, group)


# --- rows ---


def our_cell(arms: Arms, arm: str, metric: str, group: str = ALL) -> Cell:
    """Returns our number, and its standard deviation over training seeds."""
    return Cell(arms.estimate(arm, metric, group), spread=arms.spread(arm, metric, group))


def _groups(names: Sequence[str] | Mapping[str, str]) -> list[str]:
    return [*names, ALL]


def _method_rows(arms: Arms, groups: Sequence[str], read: Read) -> list[Row]:
    """Returns the paper's six rows in its order, then ours; its own method names the mode."""
    rows: list[Row] = []
    for arm, title in arms.titles.items():
        mode = f"{title} ({MODES[arm]})" if arm in MODES else title
        ours = arm in arms
        cells = [read(arm, group) if ours else Cell() for group in groups]
        rows.append(Row(arms.model or "This model", mode, cells, ours, "" if ours else NOT_RUN))
    return rows


def _differences(arms: Arms, metric: str, columns: Sequence[Column]) -> Grid:
    """Returns the paired differences to Default of the existing arms."""
    rows: list[Row] = []
    for arm, title in arms.titles.items():
        if arm == DEFAULT or arm not in arms or DEFAULT not in arms:
            continue
        found = [arms.difference(DEFAULT, arm, metric, column.name) for column in columns]
        rows.append(Row(arms.model, f"{title} less Default", [Cell(each.estimate if each else None) for each in found]))
    return Grid("Differences to Default, paired", columns, rows, "Model")


def _mode_row(arms: Arms, arm: str, metric: str) -> Row:
    ours = arm in arms
    cells = _opinion_cells(arms, arm, metric)
    return Row(arms.model or "This model", MODES[arm], cells, ours, "" if ours else NOT_RUN)


def published_rows(table: str, columns: Sequence[str], ending: str = "") -> list[Row]:
    """Returns the paper's rows, named by model and method; `ending` selects one metric."""
    paper = published(NAME)
    rows: list[Row] = []
    for name, numbers in paper.tables[table].items():
        if name.endswith(ending):
            model, _, setting = name.removesuffix(ending).partition(", ")
            cells = [Cell(None, numbers.get(column)) for column in columns]
            reason = paper.reproducible[table].get(name, "")
            rows.append(Row(model, setting, cells, ours=False, published_as=name, reproducible=reason))
    return rows
