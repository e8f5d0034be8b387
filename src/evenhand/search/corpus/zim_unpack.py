"""Decompresses the clusters of a ZIM file in bounded memory."""

from __future__ import annotations

import importlib
import lzma
from importlib.util import find_spec
from typing import IO, Any

from evenhand.core.errors import UsageError

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
