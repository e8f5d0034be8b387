"""Writes the report of a study as one self-contained HTML file: no network, no server, no framework."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from evenhand.core.files import write_text
from evenhand.show.charts import sprite
from evenhand.show.markup import Html, tag
from evenhand.show.sections.agreement import agreement
from evenhand.show.sections.answers import confusion, position
from evenhand.show.sections.base import sections_of
from evenhand.show.sections.browser import browser, embedded, navigation, sample_data
from evenhand.show.sections.changes import changes
from evenhand.show.sections.comparison import by_group, trade_off
from evenhand.show.sections.curve import calls_curve
from evenhand.show.sections.iterations import iterations
from evenhand.show.sections.overview import overview
from evenhand.show.sections.process import cost, failures, how_made
from evenhand.show.view import View, view_of
from evenhand.studies.results import ShownSample, StudyResult

_STYLES = ("page.css", "tables.css", "charts.css", "panels.css", "browser.css")
_SCRIPTS = ("page.js", "browser.js")
_MOST_BYTES = 1_300_000
"""Of a report without styles and scripts, so that it opens on a phone; samples get what other sections leave."""
_FOR_SAMPLES = 200_000
"""Room for samples in a report whose other sections are large."""
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect x='2' y='4' width='12' height='3' rx='1.5' fill='%230b6b62'/%3E"
    "%3Crect x='2' y='9' width='12' height='3' rx='1.5' fill='%230b6b62'/%3E%3C/svg%3E"
)


def write_report(study: StudyResult, samples: Iterable[ShownSample], path: Path) -> None:
    """Write the report to `path`, complete or not at all, with the given samples embedded."""
    write_text(path, render_report(study, samples))


def render_report(study: StudyResult, samples: Iterable[ShownSample]) -> str:
    """Return the HTML of the report."""
    view = view_of(study)
    sections = report_sections(view, 0)
    room = _MOST_BYTES - sum(len(html.encode(errors="replace")) for _, _, html in sections if html is not None)
    shown = embedded(samples, max(room, _FOR_SAMPLES))
    samples_at = [name for name, _, _ in sections].index("samples")
    sections[samples_at] = ("samples", "Samples", browser(view, len(shown)))
    sections = [each for each in sections if each[2] is not None]
    titles = [(name, title) for name, title, _ in sections]
    content = tag("main", [html for _, _, html in sections])
    return page(study.title, titles, content, _STYLES, _SCRIPTS, sample_data(view, shown))


def page(
    title: str,
    titles: Iterable[tuple[str, str]],
    content: Html,
    styles: Iterable[str],
    scripts: Iterable[str],
    data: Html | None = None,
) -> str:
    """Return a whole page: navigation and content, with styles and scripts inlined.

    `titles` are (section id, name in the navigation), the overview first; `styles` and `scripts` name asset files.
    """
    style, script = _asset(styles), _asset(scripts)
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#overview", class_="skip"),
        sprite(),
        tag("div", navigation(titles), content, class_="page"),
        data,
        tag("script", script),
    )
    return f"<!doctype html>\n{tag('html', _head(title, style, script), body, lang='en')}\n"


def report_sections(view: View, shown: int) -> list[tuple[str, str, Html | None]]:
    """Return (id, title in the navigation, content) per section; content None means the section is left out."""
    study = view.study
    if study.nothing_measured:
        return [
            ("overview", "Overview", overview(view)),
            ("failures", "Failures", failures(view)),
            ("cost", "Cost", cost(view)),
            ("samples", "Samples", browser(view, shown)),
            ("made", "How it was made", how_made(view)),
        ]
    always = (
        ("overview", "Overview", overview(view)),
        ("trade-off", "Headline", trade_off(view)),
        ("calls", "Calls", calls_curve(view)),
        ("groups", "By group", by_group(view)),
        ("changes", "Before and after", changes(view)),
        ("iterations", "By iteration", iterations(view) if study.by_iteration else None),
        ("agreement", "Scorers", agreement(view) if study.agreements else None),
        ("answers", "Answers", confusion(view) if any(arm.confusion for arm in view.arms) else None),
        ("position", "Position", position(view) if any(arm.position for arm in view.arms) else None),
        ("cost", "Cost", cost(view)),
        ("failures", "Failures", failures(view)),
        ("samples", "Samples", browser(view, shown)),
        ("made", "How it was made", how_made(view)),
    )
    ordered: list[tuple[str, str, Html | None]] = []
    for each in always:
        ordered.append(each)
        ordered += [(own.name, own.title, own.html(view)) for own in sections_of(study) if own.after == each[0]]
    return ordered


def _head(title: str, style: Html, script: Html) -> Html:
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title} – Evenhand"),
        tag("link", rel="icon", href=ICON),
        tag("style", style),
    )


def _asset(names: Iterable[str]) -> Html:
    """Join our own asset files; no other text is inserted unescaped."""
    folder = files("evenhand.show") / "assets"
    return Html("\n".join((folder / name).read_text(encoding="utf-8") for name in names))


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
