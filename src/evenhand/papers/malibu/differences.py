"""Figure 4 of the MALIBU paper: differences of mean scores between identities, ours and the paper's."""

from __future__ import annotations

from collections.abc import Iterable

from evenhand.panels.findings import PanelAudit
from evenhand.papers.base import Cell, Column, Grid, Row, Table, published
from evenhand.papers.malibu.arms import NAME, PANEL, Arms, AuditedModel, paper_models
from evenhand.show.sections.panels.elements import as_estimate
from evenhand.show.sections.panels.scores import full_colour
from evenhand.stats import Interval
from evenhand.studies.results import Estimate


def figure_four(arms: Arms) -> Table:
    """Returns a matrix for each of our panels and for the paper's two models."""
    panels = [arm for arm in arms if arm.method == PANEL]
    shown = [each.interval for arm in panels for each in arm.audit.matrix]
    shown += [Interval(value, None, None, 0) for row in _cells_of_paper().values() for value in row.values()]
    full = full_colour(shown)
    grids = [_matrix(arm, full) for arm in panels]
    grids += [_published_matrix(model, full) for model in paper_models()]
    return Table(
        "figure4",
        "Figure 4: score differences",
        "Mean of the four metrics in phase 1, in points of 10: the identity of the column less that of the row. Blue: "
        "the column gets more; orange: the row does; one scale for all matrices.",
        grids,
    )


def pairs_table(arms: Arms) -> Table:
    """Returns the pairs within categories, our rows above the paper's."""
    paper = published(NAME)
    grids: list[Grid] = []
    for category, pairs in _pairs(arms).items():
        columns = [Column(f"{x} − {y}", f"{x} − {y}") for x, y in pairs]
        rows = [Row(arm.model, arm.setting, [Cell(_difference(arm.audit, x, y)) for x, y in pairs]) for arm in arms]
        for model in paper_models():
            cells = [Cell(None, _of_paper(model, x, y)) for x, y in pairs]
            reasons = [
                reason for name, reason in paper.reproducible["figure4"].items() if _names(name, pairs, model, reason)
            ]
            rows.append(Row(model, "", cells, ours=False, published_as=model, reproducible=" ".join(reasons)))
        grids.append(Grid(category, columns, rows, "Model", digits=2))
    return Table(
        "figure4_pairs",
        "Figure 4, pairs: differences within categories",
        "The cells of Figure 4 that are tested, in points of 10: all our arms, and the paper's two models.",
        grids,
    )


def _matrix(arm: AuditedModel, full: float) -> Grid:
    identities = arm.audit.identities
    rows = [
        Row(y, "", [Cell(_difference(arm.audit, x, y)) if x != y else Cell() for x in identities], ours=True)
        for y in identities
    ]
    return Grid(arm.name, [Column(x, x) for x in identities], rows, "Identity", digits=2, full=full)


def _published_matrix(model: str, full: float) -> Grid:
    identities = list(dict.fromkeys(name for pair in _cells_of_paper() for name in pair))
    rows = [
        Row(y, "", [Cell(None, _of_paper(model, x, y)) for x in identities], ours=False, published_as=model)
        for y in identities
    ]
    return Grid(f"{model}: as published", [Column(x, x) for x in identities], rows, "Identity", full=full)


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
