"""Arms of the MALIBU tables: our arms with their audits, and the paper's two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.panels.findings import PanelAudit
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
