"""Figures 4, 5, 6 and 9 and the chi-square tests of the MALIBU paper as tables, and the effect of the discussion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenhand.panels.findings import ALL, COMBINED, CONTROL, MEASURES, Association, PanelAudit
from evenhand.papers.base import Grid, PaperCell, PaperColumn, PaperRow, PaperTable, published
from evenhand.show.sections.panels import PERCENT, as_estimate, full_colour, identity_name, scale_of, scaled
from evenhand.stats import Interval
from evenhand.studies.results import Estimate

NAME = "malibu"
PANEL = "panel"
"""The paper's method."""


@dataclass(frozen=True, slots=True)
class AuditedModel:
    """One of our arms."""

    model: str
    method: str
    audit: PanelAudit
    version: str = ""
    """The run that it is of, where there are several."""

    @property
    def setting(self) -> str:
        return ", ".join(filter(None, [self.method, self.version]))

    @property
    def name(self) -> str:
        return f"{self.model}, {self.setting}"


Arms = Sequence[AuditedModel]


def paper_models() -> list[str]:
    return list(next(iter(published(NAME).tables["figure4"].values())))


# --- Figure 4: differences of mean scores between identities ---


def figure_four(arms: Arms) -> PaperTable:
    """Returns a matrix for each of our panels and for the paper's two models."""
    panels = [arm for arm in arms if arm.method == PANEL]
    shown = [each.interval for arm in panels for each in arm.audit.matrix]
    shown += [Interval(value, None, None, 0) for row in _cells_of_paper().values() for value in row.values()]
    full = full_colour(shown)
    grids = [_matrix(arm, full) for arm in panels]
    grids += [_published_matrix(model, full) for model in paper_models()]
    return PaperTable(
        "figure4",
        "Figure 4: score differences",
        "Mean of the four metrics in phase 1, in points of 10: the identity of the column less that of the row. Blue: "
        "the column gets more; orange: the row does; one scale for all matrices.",
        grids,
    )


def pairs_table(arms: Arms) -> PaperTable:
    """Returns the pairs within categories, our rows above the paper's."""
    paper = published(NAME)
    grids: list[Grid] = []
    for category, pairs in _pairs(arms).items():
        columns = [PaperColumn(f"{x} − {y}", f"{x} − {y}") for x, y in pairs]
        rows = [
            PaperRow(arm.model, arm.setting, [PaperCell(_difference(arm.audit, x, y)) for x, y in pairs])
            for arm in arms
        ]
        for model in paper_models():
            cells = [PaperCell(None, _of_paper(model, x, y)) for x, y in pairs]
            reasons = [
                reason for name, reason in paper.reproducible["figure4"].items() if _names(name, pairs, model, reason)
            ]
            rows.append(PaperRow(model, "", cells, ours=False, published_as=model, reproducible=" ".join(reasons)))
        grids.append(Grid(category, columns, rows, "Model", digits=2))
    return PaperTable(
        "figure4_pairs",
        "Figure 4, pairs: differences within categories",
        "The cells of Figure 4 that are tested, in points of 10: all our arms, and the paper's two models.",
        grids,
    )


def _matrix(arm: AuditedModel, full: float) -> Grid:
    identities = arm.audit.identities
    rows = [
        PaperRow(
            y, "", [PaperCell(_difference(arm.audit, x, y)) if x != y else PaperCell() for x in identities], ours=True
        )
        for y in identities
    ]
    return Grid(arm.name, [PaperColumn(x, x) for x in identities], rows, "Identity", digits=2, full=full)


def _published_matrix(model: str, full: float) -> Grid:
    identities = list(dict.fromkeys(name for pair in _cells_of_paper() for name in pair))
    rows = [
        PaperRow(y, "", [PaperCell(None, _of_paper(model, x, y)) for x in identities], ours=False, published_as=model)
        for y in identities
    ]
    return Grid(f"{model}: as published", [PaperColumn(x, x) for x in identities], rows, "Identity", full=full)


def _difference(audit: PanelAudit, x: str, y: str) -> Estimate | None:
    found = audit.difference(x, y)
    return None if found is None else as_estimate(found.interval, found.n)


def _pairs(arms: Arms) -> dict[str, list[tuple[str, str]]]:
    """Returns the pairs of each category over all arms."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for arm in arms:
        for gap in arm.audit.gaps:
            found.setdefault(gap.category, {})[gap.x, gap.y] = None
    return {category: list(pairs) for category, pairs in found.items()}


def _cells_of_paper() -> dict[tuple[str, str], dict[str, float]]:
    """(x, y) → model → x − y."""
    rows = published(NAME).tables["figure4"]
    return {_identities(name): dict(row) for name, row in rows.items()}


def _identities(name: str) -> tuple[str, str]:
    x, _, y = name.partition(" − ")
    return x, y


def _of_paper(model: str, x: str, y: str) -> float | None:
    cells = _cells_of_paper()
    if (x, y) in cells:
        return cells[x, y][model]
    return -cells[y, x][model] if (y, x) in cells else None


def _names(name: str, pairs: Iterable[tuple[str, str]], model: str, reason: str) -> bool:
    """Returns whether a reason is about this model and one of these pairs."""
    x, y = _identities(name)
    return reason.startswith(model) and ((x, y) in pairs or (y, x) in pairs)


# --- Figures 5 and 6 ---

_DISTANCE = "largest_distance"


def win_table(arms: Arms) -> PaperTable:
    """Returns win rates by identity, and the single number that the paper gives."""
    paper = published(NAME)
    identities = _identities_by_category(arms)
    columns = [PaperColumn(identity, identity, "", category) for category, identity in identities]
    rows: list[PaperRow] = []
    simple: list[PaperRow] = []
    distances: list[PaperRow] = []
    for arm in arms:
        by_identity = {win.identity: as_estimate(scaled(win.interval, PERCENT), win.n) for win in arm.audit.wins}
        rows.append(
            PaperRow(arm.model, arm.setting, [PaperCell(by_identity.get(identity)) for _, identity in identities])
        )
        by_wilson = {win.identity: as_estimate(scaled(win.wilson, PERCENT), win.n) for win in arm.audit.wins}
        simple.append(
            PaperRow(arm.model, arm.setting, [PaperCell(by_wilson.get(identity)) for _, identity in identities])
        )
        distances.append(PaperRow(arm.model, arm.setting, [PaperCell(_largest(by_identity.values()))]))
    for model, numbers in paper.tables["wins"].items():
        reason = paper.reproducible["wins"].get(model, "")
        cells = [PaperCell(None, numbers[_DISTANCE])]
        distances.append(PaperRow(model, "", cells, ours=False, published_as=model, reproducible=reason))
    return PaperTable(
        "figures5_6",
        "Figures 5 and 6: win rates",
        "Per cent of the comparisons within the category that an identity wins, a tie counting half; intervals by "
        "profession. The paper's figures are pictures.",
        [
            Grid("Win rates", columns, rows, "Model", drawn=len(rows)),
            Grid("Win rates, Wilson intervals (as if comparisons were independent)", columns, simple, "Model"),
            Grid("Largest distance from 50 %", [PaperColumn(_DISTANCE, "Distance", "in points")], distances, "Model"),
        ],
    )


def _largest(estimates: Iterable[Estimate]) -> Estimate | None:
    values = [(abs(each.value - 50.0), each.n) for each in estimates if each.value is not None]
    if not values:
        return None
    distance, n = max(values)
    return Estimate("", "", distance, None, None, n)


def _identities_by_category(arms: Arms) -> list[tuple[str, str]]:
    every = [(name, identity) for arm in arms for name, each in arm.audit.categories.items() for identity in each]
    return list(dict.fromkeys(every))


# --- Figure 9 ---


def figure_nine(arms: Arms) -> PaperTable:
    """Returns mean scores by identity, with one grid per metric."""
    identities = [*_identities_by_category(arms), ("control", CONTROL)]
    columns = [PaperColumn(name or "control", identity_name(name), "", category) for category, name in identities]
    grids: list[Grid] = []
    for metric in (COMBINED, *dict.fromkeys(name for arm in arms for name in arm.audit.metrics)):
        rows: list[PaperRow] = []
        for arm in arms:
            means = {
                each.identity: as_estimate(each.interval, each.n) for each in arm.audit.means if each.metric == metric
            }
            if means:
                rows.append(PaperRow(arm.model, arm.setting, [PaperCell(means.get(name)) for _, name in identities]))
        name = "all metrics" if metric == COMBINED else metric
        grids.append(Grid(name, columns, rows, "Model", digits=2, drawn=len(rows)))
    return PaperTable(
        "figure9",
        "Figure 9: mean scores",
        "Scores from 0 to 10 in phase 1; intervals by profession. The paper has bars without numbers, and no control.",
        grids,
    )


# --- chi-square and the discussion ---


def chi_square_table(arms: Arms) -> PaperTable:
    """Returns p-values and effect sizes by category and metric."""
    found = [(each.category, each.metric) for arm in arms for each in arm.audit.chi_square]
    # Arms with other metrics come last, but a category's tests belong together.
    categories = list(dict.fromkeys(category for category, _ in found))
    tests = sorted(dict.fromkeys(found), key=lambda test: categories.index(test[0]))
    columns = [PaperColumn(f"{category}_{metric}", metric, "", category) for category, metric in tests]
    grids: list[Grid] = []
    for name, digits in (("p-values", 4), ("Cramér's V", 3)):
        rows: list[PaperRow] = []
        for arm in arms:
            by_test = {(each.category, each.metric): each for each in arm.audit.chi_square}
            cells = [PaperCell(_tested(by_test.get(test), name)) for test in tests]
            rows.append(PaperRow(arm.model, arm.setting, cells))
        grids.append(Grid(name, columns, rows, "Model", digits=digits))
    return PaperTable(
        "chi_square",
        "Chi-square: identities and score levels",
        "Tests of rounded scores by identity, per category and metric, in phase 1. How the paper made its tests is not "
        "said; it has p < 0.0001 in all, without statistic, degrees of freedom or n. They take scores as independent, "
        "which those of one text are not; the paired tests are in the report of the run.",
        grids,
    )


def _tested(test: Association | None, name: str) -> Estimate | None:
    if test is None:
        return None
    return Estimate(name, "", test.p_value if name == "p-values" else test.cramers_v, None, None, test.n)


def appendix_sums(arms: Arms) -> PaperTable:
    """Returns the sums of scores of Appendix A.3, of arms that have its metrics."""
    paper = published(NAME).tables["appendix"]
    columns = [PaperColumn(name, name, "sum of scores", metric) for metric in paper for name in ("female", "male")]
    rows: list[PaperRow] = []
    for arm in arms:
        means = {(each.metric, each.identity): each for each in arm.audit.means}
        if all((metric, "female") in means for metric in paper):
            found = [means.get((column.over, column.title)) for column in columns]
            cells = [PaperCell(_sum(each.interval.estimate, each.n) if each else None) for each in found]
            rows.append(PaperRow(arm.model, arm.setting, cells))
    cells = [PaperCell(None, paper[column.over][column.title]) for column in columns]
    rows.append(PaperRow("LLaMA 3.1-8b", "", cells, ours=False, published_as="Appendix A.3"))
    return PaperTable(
        "appendix_sums",
        "Appendix A.3: sums of scores",
        "Scores of all scenarios added up, by gender, with the metrics of the earlier prompt. The paper does not say "
        "of how many scores its sums are, so only the differences within a row can be compared.",
        [Grid("Sums", columns, rows, "Model", digits=0)],
    )


def _sum(mean: float | None, n: int) -> Estimate:
    return Estimate("sum", "", None if mean is None else mean * n, None, None, n)


def discussion_table(arms: Arms) -> PaperTable:
    """Returns the mean gap before and after the discussion."""
    columns = [
        PaperColumn(
            f"{measure}_{part}", title, "", MEASURES[measure] + (",\u00a0%" if scale_of(measure) == PERCENT else "")
        )
        for measure in MEASURES
        for part, title in (("before", "Before"), ("after", "After"), ("change", "Change"))
    ]
    rows: list[PaperRow] = []
    for arm in arms:
        if arm.audit.rounds:
            rows.append(
                PaperRow(arm.model, arm.setting, [cell for each in MEASURES for cell in _moved(arm.audit, each)])
            )
    return PaperTable(
        "discussion",
        "Discussion: what it did to the gaps",
        "Not in the paper, which fears that discussions amplify bias: the mean size of the gaps of the independent "
        "scores and of the last round. A change above 0 is amplification.",
        [Grid("Mean size of the gaps", columns, rows, "Model", digits=2)],
    )


def _moved(audit: PanelAudit, measure: str) -> list[PaperCell]:
    for each in audit.amplification:
        if (each.measure, each.category, each.round) == (measure, ALL, audit.rounds):
            scale = scale_of(each.measure)
            ends = [None if value is None else value * scale for value in (each.before, each.after)]
            cells = [PaperCell(Estimate("", "", value, None, None, each.n)) for value in ends]
            return [*cells, PaperCell(as_estimate(scaled(each.change, scale), each.n))]
    return [PaperCell(), PaperCell(), PaperCell()]
