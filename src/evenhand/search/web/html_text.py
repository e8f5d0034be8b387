"""Extracts the visible text of an HTML page in linear time.

Pages are untrusted, and the standard library's parser takes minutes for 100 kB of unclosed tags.
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
"""Elements without tags inside: they extend to their own end tag."""
_TAG = re.compile(r"<(?:!--|[!?]|(/?)([a-zA-Z][^\s/>]{0,30}))")
_TAG_END = re.compile(r"""[>"']""")
_HUGE_REFERENCE = re.compile(r"&#[xX]?[0-9a-fA-F]{9,};?")


def html_text(page: str) -> tuple[str, str]:
    """Return the title and the visible text of a page."""
    title = ""
    pieces: list[str] = []
    place = hidden = 0
    while tag := _TAG.search(page, place):
        if not hidden:
            pieces.append(page[place : tag.start()])
        place = _end_of_tag(page, tag)
        closing, name = tag[1], (tag[2] or "").lower()
        if name in _BLOCKS:
            pieces.append("\n")
        elif name in _HIDDEN:
            hidden = max(0, hidden - 1) if closing else hidden + 1
        elif name in _RAW and not closing:
            start, place = place, _find(_RAW[name], page, place)
            if name == "title" and not title:
                title = page[start:place]
    if not hidden:
        pieces.append(page[place:])
    return " ".join(plain_text(title).split()), plain_text("".join(pieces)).strip()


def plain_text(text: str) -> str:
    """Resolve character references; an invalid number becomes the replacement character."""
    return html.unescape(_HUGE_REFERENCE.sub("\N{REPLACEMENT CHARACTER}", text))


def _end_of_tag(page: str, tag: re.Match[str]) -> int:
    """Return the end of the tag; an unclosed one takes the rest of the page, so that no text is scanned twice."""
    if tag[0] == "<!--":
        end = page.find("-->", tag.end())
        return len(page) if end < 0 else end + 3
    place = tag.end()
    while mark := _TAG_END.search(page, place):
        if mark[0] == ">":
            return mark.end()
        closing = page.find(mark[0], mark.end())  # a > inside quotes does not end the tag
        place = mark.end() if closing < 0 else closing + 1
    return len(page)


def _find(pattern: re.Pattern[str], page: str, place: int) -> int:
    match = pattern.search(page, place)
    return match.start() if match else len(page)
