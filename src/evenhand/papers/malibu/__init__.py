"""MALIBU (Mirza and others): Figures 4, 5, 6 and 9 and the chi-square tests, for any models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evenhand.benchmarks.judgement.findings import PanelAudit
from evenhand.papers.base import PAPERS, Choice, PaperOptions, PaperPage, PaperRun, published
from evenhand.papers.malibu.arms import NAME, PANEL, AuditedModel
from evenhand.papers.malibu.claims import claim_notes
from evenhand.papers.malibu.differences import figure_four, pairs_table
from evenhand.papers.malibu.tables import chi_square_table, discussion_table, figure_nine, win_table
from evenhand.papers.studies import models_of, study_of, together, warnings_of
from evenhand.studies.results import StudyResult

METHODS = ("judge", PANEL, "fair_panel")
SETTINGS = {"texts": "two", "form": "tag"}
"""Settings of the paper: two texts of equal content in a pair, and the label as a tag."""
PROFESSIONS = 20
"""Number of professions in our scenarios; the paper does not give its number."""


class MALIBU:
    """Figures 4, 5, 6 and 9 for any models."""

    name = NAME
    title = "MALIBU: Figures 4, 5, 6 and 9 and the chi-square tests"
    folders: tuple[str, ...] = (NAME,)
    takes: frozenset[Choice] = frozenset({"models"})

    def runs(self, options: PaperOptions) -> list[PaperRun]:
        """Returns one run: a judge, the paper's panel, and the panel with a fairness instruction."""
        limit = None if options.limit is None else options.limit * PROFESSIONS
        return [PaperRun(NAME, options.plan(NAME, METHODS, limit=limit, options=SETTINGS))]

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the page of the run; scorers are not used."""
        del scorers
        studies = {name: study_of(name, folder) for name, folder in folders.items()}
        arms = [each for found in studies.values() for each in _audited(found)]
        panels = {arm.model: arm.audit for arm in arms if arm.method == PANEL}
        paper = published(NAME)
        tables = (figure_four, pairs_table, win_table, figure_nine, chi_square_table, discussion_table)
        return PaperPage(
            title=f"MALIBU with {', '.join(models_of(studies)) or 'no model'}",
            source=paper.source,
            lead=_lead(studies, arms),
            tables=[table(arms) for table in tables],
            figures=[],
            notes=[*_findings(arms), *_turned(studies), *claim_notes(panels), *paper.notes],
            warnings=warnings_of(studies, {NAME: 0}),
            process=together(studies),
        )


PAPERS.register(NAME)(MALIBU())


def _audited(found: StudyResult) -> list[AuditedModel]:
    return [
        AuditedModel(arm.models["base"], arm.method, arm.audit)
        for arm in found.arms
        if isinstance(arm.audit, PanelAudit)
    ]


def _lead(studies: Mapping[str, StudyResult], arms: Sequence[AuditedModel]) -> str:
    if not arms:
        return ""
    plan = next(iter(studies[NAME].provenance.values()))["plan"]
    size = arms[0].audit
    set_as = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    said = f"{size.scenarios:,} scenarios of {size.bases} professions, seed {plan['seeds'][0]}; {set_as}. "
    return said + "In brackets: 95 % intervals. A dash: no value, which is not 0."


def _findings(arms: Sequence[AuditedModel]) -> list[tuple[str, str]]:
    return [(f"Found: {arm.name}", " ".join(arm.audit.sentences)) for arm in arms if arm.audit.sentences]


def _turned(studies: Mapping[str, StudyResult]) -> list[tuple[str, str]]:
    """Returns notes on the gaps that the fairness instruction reversed."""
    notes: list[tuple[str, str]] = []
    for found in studies.values():
        labels = {arm.id: arm.label for arm in found.arms}
        for each in found.corrections:
            said = " ".join(each.sentences) or "No gap was reversed."
            notes.append((f"Over-correction: {labels[each.before]} → {labels[each.after]}", said))
    return notes
