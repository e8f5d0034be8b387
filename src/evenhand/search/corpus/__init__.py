"""Offline search in the user's own texts, or in the small corpus that comes with Evenhand."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import lzma
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Literal

import numpy as np
import orjson

from evenhand.core.errors import DataError, SearchError, UsageError
from evenhand.core.files import cache_folder, draft, json_lines, read_json
from evenhand.core.sqlite import connect_to_draft, connect_to_read, transaction
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult, text_field
from evenhand.search.web.pages import html_text

# --- A small reader of ZIM, the format of offline copies of Wikipedia and other sites (openzim.org) ---
# The file is untrusted: every offset is checked against its size, and decompression is bounded.

XZ, ZSTD = 4, 5
_WINDOW_BITS = 27
"""Largest window of a decompressor, as a power of two."""
_CHUNK = 1 << 16


class UnpackError(Exception):
    """The compressed bytes are damaged."""


def unpack(packing: int, file: IO[bytes], limit: int) -> bytes:
    """Decompress at most `limit` bytes from the file's position; the stream itself marks its end."""
    if packing == XZ:
        return _drain(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2 << _WINDOW_BITS), file, limit)
    if packing != ZSTD:
        raise UnpackError(f"a cluster has the unknown compression type {packing}")
    if module := _module("compression.zstd"):
        options = {module.DecompressionParameter.window_log_max: _WINDOW_BITS}
        return _drain(module.ZstdDecompressor(options=options), file, limit)
    if module := _module("zstandard"):
        reader = module.ZstdDecompressor(max_window_size=1 << _WINDOW_BITS).stream_reader(file, read_size=_CHUNK)
        try:
            return reader.read(limit)
        except module.ZstdError as error:
            raise UnpackError(f"a cluster cannot be decompressed ({error})") from error
    raise UsageError("This ZIM file is compressed with zstd: pip install zstandard (or use Python 3.14).")


def _drain(unpacker: Any, file: IO[bytes], limit: int) -> bytes:
    blocks: list[bytes] = []
    left = limit
    while left and not unpacker.eof:
        chunk = file.read(_CHUNK) if unpacker.needs_input else b""
        if unpacker.needs_input and not chunk:
            raise UnpackError("a cluster is cut off")
        try:
            blocks.append(unpacker.decompress(chunk, left))
        except Exception as error:  # each decompressor has its own error classes
            raise UnpackError(f"a cluster cannot be decompressed ({error})") from error
        left -= len(blocks[-1])
    return b"".join(blocks)


def _module(name: str) -> Any:
    """Import a module; None if it is not installed (older Pythons have no package `compression`)."""
    package = name.partition(".")[0]
    return importlib.import_module(name) if find_spec(package) and find_spec(name) else None


_HEADER: Final = struct.Struct("<IHH16sIIQQQQIIQ")
_MAGIC: Final = 72173914
_ENTRY: Final = struct.Struct("<HBcI")
_NOT_CONTENT: Final = 0xFFFD
"""Redirects, and two kinds that are not used any more, have types from here on."""
_ARTICLES: Final = (b"A", b"C")
"""The namespaces of articles, in old and in new files."""
_EXTENDED: Final = 0x10
"""Flag of clusters with 8-byte offsets."""

LARGEST_CLUSTER = 64_000_000
"""Most bytes of a cluster after decompression; a cluster of texts has one or two million."""
LARGEST_PAGE = 16_000_000
_LARGEST_LIST = 1 << 16
"""Most bytes of the list of MIME types."""
_LONGEST_NAME = 8192
"""Most bytes of an entry, with its path and title."""


@dataclass(frozen=True, slots=True)
class ZimPage:
    """An article in HTML."""

    title: str
    path: str
    html: str


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: int
    namespace: bytes
    cluster: int
    blob: int
    path: str
    title: str


@dataclass(frozen=True, slots=True)
class _Cluster:
    """A list of offsets, followed by the texts; the first offset is the length of the list."""

    read: Callable[[int, int], bytes]
    start: int
    size: int
    width: int

    def blob(self, index: int) -> bytes | None:
        """Return text number `index`; None if its offsets are invalid."""
        first = self._offset(0)
        if first is None or index + 1 >= first // self.width:
            return None
        begin, end = self._offset(index), self._offset(index + 1)
        if begin is None or end is None or not first <= begin <= end <= self.size or end - begin > LARGEST_PAGE:
            return None
        return self.read(self.start + begin, end - begin)

    def _offset(self, index: int) -> int | None:
        if (index + 1) * self.width > self.size:
            return None
        return int.from_bytes(self.read(self.start + index * self.width, self.width), "little")


def zim_pages(path: Path) -> Iterator[ZimPage]:
    """Yield all articles in storage order, so that each cluster is decompressed once."""
    try:
        with path.open("rb") as file:
            yield from _Zim(file, path).pages()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}.", file=path) from error


class _Zim:
    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._size = file.seek(0, 2)
        if self._size < _HEADER.size:
            raise self._damaged("it is too short")
        header = _HEADER.unpack(self._read(0, _HEADER.size))
        if header[0] != _MAGIC:
            raise DataError("this is not a ZIM file.", file=path)
        self._entries, self._clusters = header[4], header[5]
        self._entry_pointers, self._cluster_pointers = header[6], header[8]
        for start, count in ((self._entry_pointers, self._entries), (self._cluster_pointers, self._clusters)):
            self._check(start, 8 * count)
        self._pages = self._kinds_of_pages(header[9])

    def pages(self) -> Iterator[ZimPage]:
        number, cluster = -1, None
        for position in self._positions():
            entry = self._entry(int(position) & 0xFFFFFFFF)
            if cluster is None or entry.cluster != number:
                number, cluster = entry.cluster, self._cluster(entry.cluster)
            html = cluster.blob(entry.blob)
            if html is None:
                raise self._damaged(f"the text of {entry.path!r} lies outside its cluster or is too large")
            yield ZimPage(entry.title or entry.path, entry.path, html.decode("utf-8", "replace"))

    def _positions(self) -> Any:
        """Return the sorted positions of all articles; a position packs cluster and entry number into 64 bits."""
        positions = np.empty(self._entries, dtype=np.uint64)
        count = 0
        for index in range(self._entries):
            entry = self._entry(index)
            if entry.kind in self._pages and entry.namespace in _ARTICLES:
                positions[count] = entry.cluster << 32 | index
                count += 1
        positions = positions[:count]
        positions.sort()
        return positions

    def _entry(self, index: int) -> _Entry:
        start = self._pointer(self._entry_pointers, index)
        data = self._read(start, min(_LONGEST_NAME, self._size - start))
        if len(data) < 16:
            raise self._damaged(f"entry {index} is cut off")
        kind, _, namespace, _ = _ENTRY.unpack_from(data)
        if kind >= _NOT_CONTENT:
            return _Entry(kind, namespace, 0, 0, "", "")
        cluster, blob = struct.unpack_from("<II", data, 8)
        names = data[16:].split(b"\0", 2)
        if len(names) < 3:
            raise self._damaged(f"the name of entry {index} does not end")
        return _Entry(kind, namespace, cluster, blob, *(name.decode("utf-8", "replace") for name in names[:2]))

    def _cluster(self, index: int) -> _Cluster:
        if index >= self._clusters:
            raise self._damaged(f"there is no cluster {index}")
        start = self._pointer(self._cluster_pointers, index)
        info = self._read(start, 1)[0]
        width = 8 if info & _EXTENDED else 4
        packing = info & 0x0F
        if packing in (0, 1):
            return _Cluster(self._read, start + 1, self._size - start - 1, width)
        self._file.seek(start + 1)
        try:
            data = unpack(packing, self._file, LARGEST_CLUSTER + 1)
        except UnpackError as error:
            raise self._damaged(str(error)) from error
        if len(data) > LARGEST_CLUSTER:
            raise self._damaged(f"a cluster has more than {LARGEST_CLUSTER:,} bytes")
        return _Cluster(lambda offset, size: data[offset : offset + size], 0, len(data), width)

    def _kinds_of_pages(self, start: int) -> set[int]:
        """Return the numbers of the HTML types in the list of MIME types at `start`."""
        self._check(start, 1)
        listed = self._read(start, min(_LARGEST_LIST, self._size - start)).split(b"\0\0", 1)
        if len(listed) < 2:
            raise self._damaged("the list of types does not end")
        return {number for number, name in enumerate(listed[0].split(b"\0")) if name.startswith(b"text/html")}

    def _pointer(self, table: int, index: int) -> int:
        (start,) = struct.unpack("<Q", self._read(table + 8 * index, 8))
        self._check(start, 1)
        return start

    def _read(self, start: int, size: int) -> bytes:
        self._check(start, size)
        self._file.seek(start)
        return self._file.read(size)

    def _check(self, start: int, size: int) -> None:
        if start + size > self._size:
            raise self._damaged("an offset points beyond its end")

    def _damaged(self, why: str) -> DataError:
        return DataError(f"the ZIM file is damaged: {why}.", file=self._path)


TEXTS = (".txt", ".md", ".html", ".htm")
JSON_LINES = (".jsonl", ".jsonl.gz")
SQUAD = (".json", ".json.gz")
"""A file of SQuAD, whose passages are the documents; only where it is named itself."""
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
        if not path.name.lower().endswith((*TEXTS, *JSON_LINES, *SQUAD, ".zim")):
            ends = ", ".join((*JSON_LINES, *TEXTS))
            message = f"A corpus is a folder, or a file that ends in {ends}, .zim, or .json (a file of SQuAD)."
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
    elif name.endswith(SQUAD):
        yield from _squad_passages(file, address)
    else:
        yield _text_file(file, address)


def _squad_passages(file: Path, address: str) -> Iterator[Document]:
    """Yield every passage of the set once, without its questions and answers."""
    content = read_json(file)
    try:
        for article in content["data"]:
            for number, paragraph in enumerate(article["paragraphs"], 1):
                title, text = str(article["title"]).replace("_", " "), str(paragraph["context"])
                yield Document(title, f"{address}/{title}#{number}", text)
    except (KeyError, TypeError) as error:
        raise DataError("this JSON file is not of SQuAD: data, paragraphs, context.", file=file) from error


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
    """Offline full-text search: `corpus:builtin`, or `corpus:PATH` of a folder, JSON Lines, SQuAD or a ZIM file.

    The index is built when the provider is loaded, if there is none yet or the files have changed.
    """

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
