"""Offline search in the user's own texts, or in the small corpus that comes with Evenhand."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson

from evenhand.core.errors import DataError, SearchError, UsageError
from evenhand.core.files import cache_folder, draft, json_lines
from evenhand.core.sqlite import connect_to_draft, connect_to_read, transaction
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult, text_field
from evenhand.search.corpus.zim import zim_pages
from evenhand.search.web.pages import html_text

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
        for document in _read_file(file, address):
            if document.text.strip():
                yield document


def _read_file(file: Path, address: str) -> Iterator[Document]:
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


FORMAT = 1
"""Version of the index and of text extraction; a change rebuilds old files."""
WORDS = 200
"""Approximate words per passage; it ends at a sentence if one ends in its second half."""
LONGEST_TEXT = 4000
"""Most characters of a hit's text: the best passage and its neighbours."""

_LONGEST_PASSAGE = 2000
_TITLE_WEIGHT = 3.0
_MOST_TERMS = 32
_SCHEMA = """
CREATE TABLE facts (format INTEGER, sha256 TEXT, documents INTEGER);
CREATE TABLE documents (id INTEGER PRIMARY KEY, title TEXT, url TEXT);
CREATE VIRTUAL TABLE passages USING fts5(
  title, text, document UNINDEXED, tokenize = 'porter unicode61 remove_diacritics 2'
);
"""
_WORD = re.compile(r"\S{1,100}")
_TERM = re.compile(r"\w+")
_STOP_WORDS = frozenset(
    _TERM.findall(
        "a about an and any are as at be been being but by can could did do does for from had has have he her his how "
        "i if in into is it its may more most no not of on or our she should so some such than that the their them "
        "there these they this those to was we were what when where which who whom why will with would you your"
    )
)


@dataclass(frozen=True, slots=True)
class CorpusIndex:
    """An index that is ready for searches."""

    file: Path
    sha256: str
    """Hash of the documents, independent of their location."""
    documents: int

    def search(self, query: str, limit: int) -> list[Hit]:
        """Return the documents with the best passages, best first."""
        expression = match_expression(query)
        if not expression or limit < 1:
            return []
        with contextlib.closing(connect_to_read(self.file)) as db:
            return [_hit(db, *match) for match in _best_passages(db, expression, limit)]


def fts5_missing() -> bool:
    with contextlib.closing(connect_to_draft(None)) as db:
        try:
            db.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.OperationalError:
            return True
    return False


def load_index(path: Path) -> CorpusIndex:
    """Return the index of the corpus at `path`; build it if there is none for the current files."""
    file = cache_folder() / "corpora" / f"{_state(path)}.sqlite"
    index = _read_index(file)
    if index is None:
        _build(path, file)
        index = _read_index(file)
    if index is None:
        raise UsageError(f"The index {file} cannot be read; check the disk.")
    return index


def match_expression(query: str) -> str:
    """Return an FTS5 expression that matches any word of the query; quotes keep query syntax out."""
    terms = list(dict.fromkeys(_TERM.findall(query.lower())))
    content_words = [term for term in terms if term not in _STOP_WORDS] or terms
    return " OR ".join(f'"{term}"' for term in content_words[:_MOST_TERMS])


def passages(text: str) -> Iterator[str]:
    """Split a text into passages of about WORDS words."""
    start = end = sentence = words = 0
    for word in _WORD.finditer(text):
        if words == WORDS or word.end() - start > _LONGEST_PASSAGE:
            cut = sentence or end
            if piece := _one_line(text[start:cut]):
                yield piece
            words = len(_WORD.findall(text[cut:end]))
            start, sentence = cut, 0
        end = word.end()
        words += 1
        if words > WORDS // 2 and word[0].endswith((".", "!", "?", ".”", '."')):
            sentence = end
    if rest := _one_line(text[start:]):
        yield rest


def _state(path: Path) -> str:
    """Return a hash of the files' paths, sizes and times, which changes when they do."""
    digest = hashlib.sha256(f"{FORMAT}\0{path.resolve()}".encode("utf-8", "surrogateescape"))
    for file in corpus_files(path.resolve()):
        stat = file.stat()
        digest.update(f"\0{file}\0{stat.st_size}\0{stat.st_mtime_ns}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _read_index(file: Path) -> CorpusIndex | None:
    """Return the index in a file; None if the file is missing or damaged."""
    if not file.is_file():
        return None
    try:
        with contextlib.closing(connect_to_read(file)) as db:
            version, sha256, count = db.execute("SELECT format, sha256, documents FROM facts").fetchone()
    except (sqlite3.Error, TypeError):
        return None
    return CorpusIndex(file, sha256, count) if version == FORMAT else None


def _build(path: Path, file: Path) -> None:
    """Write the index, complete or not at all, so that two processes do not collide."""
    try:
        with draft(file) as part, contextlib.closing(connect_to_draft(part)) as db:
            _fill(db, path)
    except OSError as error:
        message = f"The index of {path} cannot be written ({error.strerror}); set EVENHAND_CACHE to a writable folder."
        raise UsageError(message) from error
    except sqlite3.Error as error:
        raise UsageError(f"The index of {path} cannot be written to {file.parent} ({error}).") from error


def _fill(db: sqlite3.Connection, path: Path) -> None:
    db.executescript(_SCHEMA)
    digest = hashlib.sha256()
    count = 0
    with transaction(db):
        for count, document in enumerate(documents(path), 1):
            digest.update(orjson.dumps((document.title, document.url, document.text)))
            _add(db, count, document)
        db.execute("INSERT INTO facts VALUES (?, ?, ?)", (FORMAT, digest.hexdigest(), count))


def _add(db: sqlite3.Connection, number: int, document: Document) -> None:
    title = _one_line(document.title)
    db.execute("INSERT INTO documents VALUES (?, ?, ?)", (number, title, document.url))
    db.executemany(
        "INSERT INTO passages (title, text, document) VALUES (?, ?, ?)",
        ((title, passage, number) for passage in passages(document.text)),
    )


def _best_passages(db: sqlite3.Connection, expression: str, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the best documents, each with the number of its best passage."""
    seen: set[int] = set()
    rows: Any = db.execute(
        "SELECT document, rowid FROM passages WHERE passages MATCH ? ORDER BY bm25(passages, ?), rowid",
        (expression, _TITLE_WEIGHT),
    )
    for document, passage in rows:
        if document not in seen:
            seen.add(document)
            yield document, passage
        if len(seen) == limit:
            return


def _hit(db: sqlite3.Connection, document: int, passage: int) -> Hit:
    title, url = db.execute("SELECT title, url FROM documents WHERE id = ?", (document,)).fetchone()
    around = db.execute(
        "SELECT rowid, text FROM passages WHERE rowid BETWEEN ? AND ? AND document = ?",
        (passage - 1, passage + 1, document),
    )
    texts: dict[int, str] = dict(around.fetchall())
    best = text = texts[passage]
    for number in (passage + 1, passage - 1):
        if (more := texts.get(number)) and len(text) + len(more) < LONGEST_TEXT:
            text = f"{text} {more}" if number > passage else f"{more} {text}"
    return Hit(title, url, best, text)


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())


BUILTIN = "builtin"


@SEARCHES.register("corpus")
class CorpusSearch(SearchProvider):
    """Offline full-text search: `corpus:builtin`, or `corpus:PATH` of a folder, JSON Lines or a ZIM file.

    The index is built when the provider is loaded, if there is none yet or the files have changed.
    """

    name: ClassVar[str] = "corpus"
    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "needed"

    def __init__(self, argument: str) -> None:
        self.argument = argument
        builtin = Path(__file__).with_name("builtin.jsonl")
        path = builtin if argument == BUILTIN else Path(argument).expanduser()
        self._index = load_index(path)
        if not self._index.documents:
            raise DataError("The corpus has no documents.", file=path)

    @classmethod
    def unavailable(cls) -> str | None:
        if fts5_missing():
            return "The search provider corpus needs SQLite with FTS5, which this Python lacks."
        return None

    def fingerprint(self) -> Mapping[str, Any]:
        # The index format is included, since another one may rank differently.
        index = self._index
        return {"search": self.name, "sha256": index.sha256, "documents": index.documents, "index": FORMAT}

    async def search(self, query: str, limit: int) -> SearchResult:
        try:
            hits = await asyncio.to_thread(self._index.search, query, limit)
        except sqlite3.Error as error:
            raise SearchError(f"The index of corpus {self.argument} cannot be read ({error}).") from error
        return self.result(query, hits)
