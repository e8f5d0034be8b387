"""Links inside the documentation lead somewhere, and every page can be found."""

import pkgutil
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.docs import DOCS, PAGES, ROOT, name, prose

_LINK = re.compile(r"\]\(([^)\s]+)\)")
LINKING = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md")


def links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(prose(page)) if not link.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_links_lead_to_files_and_headings(page: Path):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_links_of_the_site_stay_inside_it(page: Path):
    for link in links(page):
        assert (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS), link


def nav_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in nav_pages(part)]


def test_the_menu_has_every_page_once():
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))

    assert sorted(nav_pages(site["project"]["nav"])) == pages


def test_the_index_links_to_every_page():
    linked = {link.partition("#")[0] for link in links(DOCS / "index.md")}
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}

    assert pages - linked == {"index.md"}


def spans(pattern: str) -> set[str]:
    return {found for page in PAGES for found in re.findall(rf"`({pattern})[`(]", prose(page))}


def test_files_that_pages_name_exist():
    named = spans(r"(?:src|tests|examples|bench|tools|deploy)/[\w./-]+")

    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_names_of_the_package_that_pages_use_exist():
    groups = {f"evenhand.{group}" for group in ("models", "search_providers", "report_sections")}  # entry points
    package = ROOT / "src" / "evenhand"
    files = ("core/tracing.py", "server/telemetry/events.py", "runs/runner.py")
    spans_of_traces = [package / file for file in files]
    attributes = {name for file in spans_of_traces for name in re.findall(r'"(evenhand\.[\w.]+)"', file.read_text())}
    named = spans(r"evenhand(?:\.\w+)+") - groups - attributes - {"evenhand.toml"}

    assert named
    for path in named:
        assert pkgutil.resolve_name(path) is not None
