"""Arms of the MALIBU tables: our arms with their audits, and the paper's two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.benchmarks.judgement.findings import PanelAudit
from evenhand.papers.base import published

NAME = "malibu"
PANEL = "panel"
"""The paper's method."""


@dataclass(frozen=True, slots=True)
class AuditedModel:
    """One of our arms."""

    model: str
    method: str
    audit: PanelAudit

    @property
    def name(self) -> str:
        return f"{self.model}, {self.method}"


Arms = Sequence[AuditedModel]


def paper_models() -> list[str]:
    return list(next(iter(published(NAME).tables["figure4"].values())))
