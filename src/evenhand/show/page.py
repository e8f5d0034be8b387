"""A page as a value, written as one self-contained HTML file: no network, no server, no framework."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from evenhand.core.files import write_text
from evenhand.show.chart import sprite
from evenhand.show.markup import Html, Node, tag

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect x='2' y='4' width='12' height='3' rx='1.5' fill='%230b6b62'/%3E"
    "%3Crect x='2' y='9' width='12' height='3' rx='1.5' fill='%230b6b62'/%3E%3C/svg%3E"
)
_STYLES = ("page.css", "tables.css", "charts.css", "panels.css")
_SCRIPTS = ("page.js",)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page: its id, its title in the navigation and its content."""

    id: str
    title: str
    html: Html


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its parts, the opening first. Parts that are None are left out."""

    title: str
    parts: Sequence[Part | None]
    styles: Sequence[str] = ()
    """Names of asset files, besides those of every page."""
    scripts: Sequence[str] = ()
    data: Html | None = None
    """Embedded data for the scripts."""

    def html(self) -> str:
        """Return the whole page: navigation and content, with styles and scripts inlined."""
        shown = [part for part in self.parts if part is not None]
        style, script = _asset((*_STYLES, *self.styles)), _asset((*_SCRIPTS, *self.scripts))
        content = tag("main", [part.html for part in shown])
        body = tag(
            "body",
            tag("a", "Skip to the report", href="#overview", class_="skip"),
            sprite(),
            tag("div", _navigation(shown), content, class_="page"),
            self.data,
            tag("script", script, type="module"),
        )
        return f"<!doctype html>\n{tag('html', _head(self.title, style, script), body, lang='en')}\n"

    def write(self, path: Path) -> None:
        """Write the page, complete or not at all."""
        write_text(path, self.html())


def opening(title: str, about: str, *content: Node, brand: str = "Evenhand") -> Part:
    """The first part of a page: what kind of page it is, its heading, and what to read first."""
    return Part(
        "overview",
        "Overview",
        tag(
            "section",
            tag("p", brand, tag("span", about, class_="benchmark"), class_="eyebrow"),
            tag("h1", title, id="overview-title"),
            content,
            id="overview",
            aria_labelledby="overview-title",
        ),
    )


def section(name: str, title: str, lead: Node, *content: Node, is_open: bool = True) -> Html:
    """Return a section that folds under its heading; the script closes all sections on narrow screens."""
    heading = f"{name}-title"
    return tag(
        "section",
        tag(
            "details",
            tag("summary", tag("h2", title, id=heading)),
            tag("p", lead, class_="lead") if lead else None,
            content,
            class_="fold",
            open=is_open,
        ),
        id=name,
        aria_labelledby=heading,
    )


def details(title: Node, *content: Node, is_open: bool = False, class_: str | None = None) -> Html:
    return tag("details", tag("summary", title), content, class_=class_, open=is_open)


def sentences(said: Iterable[Node], class_: str | None = "sentences") -> Html:
    return tag("ul", [tag("li", each) for each in said], class_=class_)


def prose(text: str) -> list[Node]:
    """Return a sentence whose `commands` in backticks are set as code."""
    return [tag("code", part) if place % 2 else part for place, part in enumerate(re.split("`([^`]+)`", text))]


def nothing(text: str) -> Html:
    """Return the notice shown if a section has no data."""
    return tag("p", text, class_="nothing")


def facts(rows: Iterable[tuple[Node, Node]], class_: str = "facts") -> Html:
    """Return a list of names and what is to be said of each."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", said)) for name, said in rows], class_=class_)


def footnote(text: Node) -> Html:
    return tag("p", text, class_="footnote")


def _navigation(parts: Iterable[Part]) -> Html:
    """Return links to the parts and the switch between light and dark."""
    links = [tag("li", tag("a", part.title, href=f"#{part.id}")) for part in parts]
    switch = tag("button", "◐ Dark", type="button", id="theme", class_="needs-js", aria_pressed="false")
    return tag("nav", tag("span", "Evenhand", class_="brand"), tag("ul", links), switch, aria_label="Sections")


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
