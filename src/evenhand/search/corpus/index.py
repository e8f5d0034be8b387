"""The full-text index of an offline corpus: one SQLite file in the cache folder, built once, ranked by BM25."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import UsageError
from evenhand.core.files import cache_folder, draft
from evenhand.core.sqlite import connect_to_draft, connect_to_read, transaction
from evenhand.search.base import Hit
from evenhand.search.corpus.files import Document, corpus_files, documents

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
    index = _read(file)
    if index is None:
        _build(path, file)
        index = _read(file)
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


def _read(file: Path) -> CorpusIndex | None:
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
