"""Extracts the readable text of a web page, bounded and without anything invisible.

A hostile page can make this slow, so `PageReader` runs it in a process that can be killed.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from importlib import import_module
from typing import Any

from evenhand.core.errors import MissingExtraError, SearchError
from evenhand.search.corpus.files import html_text

LONGEST_TEXT = 6_000
LONGEST_TITLE = 200
# Invisible characters that count as letters, marks or symbols: fillers and variation selectors.
_BLANK_LOOKING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_HIDING = re.compile(r"display:none|visibility:hidden|font-size:0(?![.\d])")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s|$)")


def page_text(html: str, url: str, *, plain: bool = False) -> tuple[str, str]:
    """Return the title and main text of a page; raise SearchError if it has no text."""
    title, text = ("", html) if plain else _main_text(html, url)
    text = tidy(text)
    if not text:
        raise SearchError("The page has no text.")
    return tidy_line(title, LONGEST_TITLE), text


def tidy(text: str, longest: int = LONGEST_TEXT) -> str:
    """Remove invisible characters and repeated white space, and cut the text at a sentence."""
    # Cut early, so that a huge text costs little; leave room, since much of it may be invisible.
    text = _BLANK_LOOKING.sub("", text[: 20 * longest])
    text = "".join(each for each in text if each in "\n\r\t" or unicodedata.category(each)[0] != "C")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return cut("\n".join(line for line in lines if line), longest)


def tidy_line(text: str, longest: int) -> str:
    """Do the same as `tidy`, on one line."""
    return tidy(text, longest).replace("\n", " ")


def cut(text: str, longest: int) -> str:
    """Cut a text to at most `longest` characters, after the last sentence that fits, or else the last word."""
    if len(text) <= longest:
        return text
    start = text[: longest + 1]
    ends = [match.end() for match in _SENTENCE_END.finditer(start) if match.end() <= longest]
    # If the last sentence ends early, cutting there would lose most of the text.
    if ends and ends[-1] > longest // 2:
        return start[: ends[-1]]
    words = start.rsplit(maxsplit=1)
    return words[0] if len(words) == 2 and len(words[0]) > longest // 2 else start[:longest]


def _main_text(html: str, url: str) -> tuple[str, str]:
    try:
        import trafilatura
    except ImportError as error:
        raise MissingExtraError("Reading web pages", "search") from error
    main = None
    with contextlib.suppress(Exception):  # if the parser fails, the plain text remains
        html = _visible(html)
        main = trafilatura.extract(html, url=url, include_comments=False)
    title, everything = html_text(html)
    return title, main or everything


def _visible(html: str) -> str:
    """Remove hidden elements: people do not see them, so models should not, either."""
    from trafilatura import load_html

    lxml_html: Any = import_module("lxml.html")  # it has no type annotations
    tree: Any = load_html(html)
    if tree is None:
        return html
    for element in [each for each in tree.iterdescendants() if _is_hidden(each)]:
        element.drop_tree()
    return lxml_html.tostring(tree, encoding="unicode")


def _is_hidden(element: Any) -> bool:
    style = "".join(element.get("style", "").lower().split())
    return "hidden" in element.attrib or _HIDING.search(style) is not None
