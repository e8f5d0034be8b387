"""Extracts the readable text of a web page, bounded and without anything invisible, in a process that can be killed.

A page within all limits can keep an HTML parser busy for minutes (a tag with 150,000 attributes is enough) or crash it.
A process can be killed and replaced, a thread cannot; and the process gets no keys from the environment. `html_text`
takes linear time and needs no parser.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import re
import sys
import unicodedata
from asyncio.subprocess import DEVNULL, PIPE, Process
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import orjson

from evenhand.core.errors import MissingExtraError, SearchError, needs_extra
from evenhand.search.web.fetch import Page

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
    with needs_extra("reading web pages", "search"):
        import trafilatura
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


_KEPT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL")
"""Environment variables that a Python process may need to start."""


class PageReader:
    """Reads pages: `await reader.read(page)`; one at a time, each within `limit_s` seconds."""

    def __init__(self, limit_s: float = 10.0) -> None:
        if not find_spec("trafilatura"):
            raise MissingExtraError("reading web pages", "search")
        self._limit_s = limit_s
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def read(self, page: Page) -> tuple[str, str]:
        """Return title and text; raise SearchError if the page has no text or takes too long."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._limit_s):
                    reply = await self._request(page)
            except BaseException as error:
                # Also when cancelled: a late reply would be mistaken for that of the next page.
                await self._end()
                if isinstance(error, TimeoutError):
                    raise SearchError("A page takes too long to read.") from error
                if isinstance(error, OSError | ValueError):
                    raise SearchError("A page cannot be read.") from error
                raise
        match reply:
            case {"title": str(title), "text": str(text)}:
                return title, text
            case _:
                raise SearchError("A page has no text.")

    async def aclose(self) -> None:
        async with self._turn:
            await self._end()

    async def _request(self, page: Page) -> Any:
        process = self._process = self._process or await _start()
        assert process.stdin is not None and process.stdout is not None
        request = {"html": page.content, "url": page.url, "plain": page.plain}
        process.stdin.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
        await process.stdin.drain()
        return orjson.loads(await process.stdout.readline())

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.communicate()  # waits for the end and closes the pipes


async def _start() -> Process:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
    )


def serve() -> None:
    """Run the separate process: read one page per line, write its title and text, until the input ends."""
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        try:
            title, text = page_text(request["html"], request["url"], plain=request["plain"])
            reply = {"title": title, "text": text}
        except SearchError:
            reply = None
        sys.stdout.buffer.write(orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
