"""A small reader of ZIM, the format of offline copies of Wikipedia and other sites (openzim.org).

The file is untrusted: every offset is checked against its size, and decompression is bounded.
"""

from __future__ import annotations

import importlib
import lzma
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from evenhand.core.errors import DataError, UsageError

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
