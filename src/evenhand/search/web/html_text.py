"""The visible text of an HTML page, in time that grows only with its length.

The parser of the standard library needs minutes for a hundred kilobytes of unclosed tags, and pages are untrusted.
"""

from __future__ import annotations

import html
import re

_BLOCKS = frozenset({
    "address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "h1", "h2", "h3", "h4", "h5", "h6",
    "hr", "li", "main", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul",
})  # fmt: skip
_HIDDEN = frozenset({"template", "noscript", "svg", "nav", "footer"})
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "title", "textarea")}
"""Elements that hold no tags: they last up to their own end tag."""
_TAG = re.compile(r"<(?:!--|[!?]|(/?)([a-zA-Z][^\s/>]{0,30}))")
_TAG_END = re.compile(r"""[>"']""")
_HUGE_REFERENCE = re.compile(r"&#[xX]?[0-9a-fA-F]{9,};?")


def html_text(page: str) -> tuple[str, str]:
    """The title and the visible text of a page."""
    title = ""
    parts: list[str] = []
    place = hidden = 0
    while tag := _TAG.search(page, place):
        if not hidden:
            parts.append(page[place : tag.start()])
        place = _end_of_tag(page, tag)
        closing, name = tag[1], (tag[2] or "").lower()
        if name in _BLOCKS:
            parts.append("\n")
        elif name in _HIDDEN:
            hidden = max(0, hidden - 1) if closing else hidden + 1
        elif name in _RAW and not closing:
            start, place = place, _find(_RAW[name], page, place)
            if name == "title" and not title:
                title = page[start:place]
    if not hidden:
        parts.append(page[place:])
    return " ".join(plain_text(title).split()), plain_text("".join(parts)).strip()


def plain_text(text: str) -> str:
    """The text with its character references resolved; a number that is no character becomes the replacement mark."""
    return html.unescape(_HUGE_REFERENCE.sub("\N{REPLACEMENT CHARACTER}", text))


def _end_of_tag(page: str, tag: re.Match[str]) -> int:
    """Behind the tag; what never ends takes the rest of the page, so that no part of it is looked at twice."""
    if tag[0] == "<!--":
        end = page.find("-->", tag.end())
        return len(page) if end < 0 else end + 3
    place = tag.end()
    while mark := _TAG_END.search(page, place):
        if mark[0] == ">":
            return mark.end()
        closing = page.find(mark[0], mark.end())  # a > inside quotes ends nothing
        place = mark.end() if closing < 0 else closing + 1
    return len(page)


def _find(pattern: re.Pattern[str], page: str, place: int) -> int:
    found = pattern.search(page, place)
    return found.start() if found else len(page)
