"""The report of a study: its sections in order, as one self-contained HTML file with samples to browse."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evenhand.show.browser import browser, embedded, sample_data
from evenhand.show.certificates import run_certificates
from evenhand.show.markup import Html
from evenhand.show.page import Page, Part
from evenhand.show.sections import sections_of
from evenhand.show.sections.answers import agreement, confusion, position
from evenhand.show.sections.comparison import by_group, calls_curve, changes, iterations, trade_off
from evenhand.show.sections.overview import overview
from evenhand.show.sections.process import process_parts
from evenhand.show.view import View, view_of
from evenhand.studies.results import ShownSample, StudyResult

_MOST_BYTES = 1_300_000
"""Of a report without styles and scripts, so that it opens on a phone; samples get what other sections leave."""
_FOR_SAMPLES = 200_000
"""Room for samples in a report whose other sections are large."""


def write_report(study: StudyResult, samples: Iterable[ShownSample], path: Path) -> None:
    """Write the report to `path`, complete or not at all, with the given samples embedded."""
    report_page(study, samples).write(path)


def render_report(study: StudyResult, samples: Iterable[ShownSample]) -> str:
    return report_page(study, samples).html()


def report_page(study: StudyResult, samples: Iterable[ShownSample]) -> Page:
    """Return the report with as many of the samples as there is room for."""
    view = view_of(study)
    parts = report_parts(view)
    room = _MOST_BYTES - sum(len(part.html.encode(errors="replace")) for part in parts)
    shown = embedded(samples, max(room, _FOR_SAMPLES))
    made = next((place for place, part in enumerate(parts) if part.id == "made"), len(parts))
    parts[made:made] = _parts(("samples", "Samples", browser(view, len(shown))))
    return Page(study.title, parts, ("browser.css",), ("dom.js", "browser.js"), sample_data(view, shown))


def report_parts(view: View) -> list[Part]:
    """Return the parts of the report that have something to show, without the samples."""
    study = view.study
    process = process_parts(view)
    if study.nothing_measured:  # then the failures come first
        return [overview(view), *sorted(process, key=lambda part: ("failures", "cost", "made").index(part.id))]
    always = (
        ("overview", "", None),
        ("trade-off", "Trade-off", trade_off(view)),
        ("calls", "Calls", calls_curve(view)),
        ("groups", "By group", by_group(view)),
        ("changes", "Before and after", changes(view)),
        ("instruments", "Controls", run_certificates(study)),
        ("iterations", "By iteration", iterations(view) if study.by_iteration else None),
        ("agreement", "Scorers", agreement(view) if study.agreements else None),
        ("answers", "Answers", confusion(view) if any(arm.confusion for arm in view.arms) else None),
        ("position", "Position", position(view) if any(arm.position for arm in view.arms) else None),
    )
    found, own = [overview(view)], sections_of(study)
    for part in always:
        found += _parts(part, *((each.name, each.title, each.html(view)) for each in own if each.after == part[0]))
    return [*found, *process]


def _parts(*given: tuple[str, str, Html | None]) -> list[Part]:
    return [Part(name, title, html) for name, title, html in given if html is not None]
