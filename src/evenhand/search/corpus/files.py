"""Reads the documents of an offline corpus, one at a time, from a folder of texts, JSON Lines or a ZIM file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evenhand.core.errors import DataError
from evenhand.core.files import json_lines
from evenhand.search.base import text_field
from evenhand.search.corpus.zim import zim_pages
from evenhand.search.web.html_text import html_text

TEXTS = (".txt", ".md", ".html", ".htm")
JSON_LINES = (".jsonl", ".jsonl.gz")
LARGEST_TEXT = 32_000_000
"""Most bytes of a text file; a larger one must be split."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus."""

    title: str
    url: str
    text: str


def corpus_files(path: Path) -> list[Path]:
    """Return the files of a corpus in a fixed order; raise DataError if there are none."""
    if not path.exists():
        raise DataError("There is no such file or folder.", file=path)
    if not path.is_dir():
        if not path.name.lower().endswith((*TEXTS, *JSON_LINES, ".zim")):
            message = f"A corpus is a folder, or a file that ends in {', '.join((*JSON_LINES, *TEXTS))} or .zim."
            raise DataError(message, file=path)
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if file.name.lower().endswith((*TEXTS, *JSON_LINES)) and not file.name.startswith(".") and file.is_file()
    )
    if not files:
        raise DataError(f"The folder has no file that ends in {', '.join((*TEXTS, *JSON_LINES))}.", file=path)
    return files


def documents(path: Path) -> Iterator[Document]:
    """Yield all documents with a text; those without a URL get `corpus:NAME/PATH`."""
    for file in corpus_files(path):
        inside = "" if file == path else f"/{file.relative_to(path).as_posix()}"
        # A file name need not be UTF-8, but a URL must be.
        address = f"corpus:{path.resolve().name}{inside}".encode("utf-8", "replace").decode()
        for document in _read(file, address):
            if document.text.strip():
                yield document


def _read(file: Path, address: str) -> Iterator[Document]:
    name = file.name.lower()
    if name.endswith(".zim"):
        for page in zim_pages(file):
            title, text = html_text(page.html)
            yield Document(page.title or title, f"{address}/{page.path}", text)
    elif name.endswith(JSON_LINES):
        for number, row in json_lines(file):
            title, url, text = (text_field(row, field, file, number) for field in ("title", "url", "text"))
            if not text.strip():
                raise DataError("the field 'text' is missing or empty.", file=file, line=number)
            yield Document(title, url or f"{address}#{number}", text)
    else:
        yield _text_file(file, address)


def _text_file(file: Path, address: str) -> Document:
    try:
        if file.stat().st_size > LARGEST_TEXT:
            raise DataError(f"The text has more than {LARGEST_TEXT:,} bytes; split it.", file=file)
        text = file.read_text("utf-8-sig", errors="replace")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}.", file=file) from error
    title = ""
    if file.suffix.lower() in (".html", ".htm"):
        title, text = html_text(text)
    elif file.suffix.lower() == ".md":
        title = next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "")
    return Document(title.strip() or file.stem.encode("utf-8", "replace").decode(), address, text)
