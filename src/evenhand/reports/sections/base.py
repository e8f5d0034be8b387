"""Sections that only some reports have: a benchmark asks for them by name in its `report_sections`.

A package of its own adds one by `add_section`, or by the entry point group `evenhand.report_sections`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from evenhand.errors import UnknownNameError
from evenhand.registry import Registry
from evenhand.reports.markup import Html
from evenhand.reports.view import View
from evenhand.studies.results import StudyResult

if TYPE_CHECKING:
    from rich.table import Table

Place = Literal["overview", "trade-off", "groups", "changes"]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the HTML report, and what the terminal shows of it."""

    name: str
    title: str
    """In the navigation."""
    html: Callable[[View], Html | None]
    """The section, or None if this study has nothing to show in it."""
    after: Place = "overview"
    """The section of every report that it follows."""
    metrics: tuple[str, ...] = ()
    """Metrics that the terminal's table of arms has too, where they were measured."""
    tables: Callable[[StudyResult], Iterable[Table]] = lambda _: ()
    """Further tables for the terminal."""
    sentences: Callable[[StudyResult], Iterable[str]] = lambda _: ()
    """Further sentences for the terminal."""

    def __post_init__(self) -> None:
        if self.after not in get_args(Place):
            raise UnknownNameError("section that others can follow", self.after, get_args(Place))


SECTIONS: Registry[Section] = Registry("report section", package="evenhand.reports.sections")


def add_section(section: Section) -> Section:
    """Make a section known by its name."""
    return SECTIONS.register(section.name)(section)


def sections_of(study: StudyResult) -> list[Section]:
    """The sections that the study's benchmark asks for."""
    return [SECTIONS.get(name) for name in study.report_sections]
