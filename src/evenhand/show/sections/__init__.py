"""Optional report sections, which a benchmark requests by name in its `report_sections`.

Other packages add a section with `add_section` or the entry point group `evenhand.report_sections`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from evenhand.core.errors import check_names
from evenhand.core.registry import Registry
from evenhand.show.markup import Html
from evenhand.show.table import Table
from evenhand.show.view import View
from evenhand.studies.results import StudyResult

Place = Literal["overview", "trade-off", "groups", "changes"]


@dataclass(frozen=True, slots=True)
class Section:
    """An optional section of the HTML report, with its terminal output."""

    name: str
    title: str
    """Title in the navigation."""
    html: Callable[[View], Html | None]
    """Renders the section; None leaves it out."""
    after: Place = "overview"
    """The standard section that it follows."""
    metrics: tuple[str, ...] = ()
    """Additional metrics for the terminal's table of arms, where measured."""
    tables: Callable[[StudyResult], Iterable[Table]] = lambda _: ()
    """Additional tables for the terminal."""
    sentences: Callable[[StudyResult], Iterable[str]] = lambda _: ()
    """Additional sentences for the terminal."""

    def __post_init__(self) -> None:
        check_names("section that others can follow", get_args(Place), self.after)


SECTIONS: Registry[Section] = Registry("report section", package="evenhand.show.sections")


def add_section(section: Section) -> Section:
    """Register a section under its name."""
    return SECTIONS.register(section.name)(section)


def sections_of(study: StudyResult) -> list[Section]:
    return [SECTIONS.get(name) for name in study.report_sections]
