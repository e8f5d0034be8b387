"""Unpacking of the clusters of a ZIM file, into bounded memory."""

from __future__ import annotations

import importlib
import lzma
from importlib.util import find_spec
from typing import IO, Any

from evenhand.errors import UsageError

XZ, ZSTD = 4, 5
_WINDOW_BITS = 27
"""What an unpacker may keep in memory at most: two to this power."""
_CHUNK = 1 << 16


class UnpackError(Exception):
    """The packed bytes are damaged."""


def unpack(packing: int, file: IO[bytes], limit: int) -> bytes:
    """What is packed from the file's position on, `limit` bytes at most; a packed stream knows its own end."""
    if packing == XZ:
        return _drain(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2 << _WINDOW_BITS), file, limit)
    if packing != ZSTD:
        raise UnpackError(f"a cluster is packed in way {packing}, which is not known")
    if module := _module("compression.zstd"):
        options = {module.DecompressionParameter.window_log_max: _WINDOW_BITS}
        return _drain(module.ZstdDecompressor(options=options), file, limit)
    if module := _module("zstandard"):
        reader = module.ZstdDecompressor(max_window_size=1 << _WINDOW_BITS).stream_reader(file, read_size=_CHUNK)
        try:
            return reader.read(limit)
        except module.ZstdError as error:
            raise UnpackError(f"a cluster cannot be unpacked ({error})") from error
    raise UsageError("This ZIM file is packed with zstd: pip install zstandard (or use Python 3.14).")


def _drain(unpacker: Any, file: IO[bytes], limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    while room and not unpacker.eof:
        chunk = file.read(_CHUNK) if unpacker.needs_input else b""
        if unpacker.needs_input and not chunk:
            raise UnpackError("a cluster is cut off")
        try:
            parts.append(unpacker.decompress(chunk, room))
        except Exception as error:  # each unpacker has errors of its own
            raise UnpackError(f"a cluster cannot be unpacked ({error})") from error
        room -= len(parts[-1])
    return b"".join(parts)


def _module(name: str) -> Any:
    """The module, or None where it is not installed; the older Pythons have no `compression` at all."""
    package = name.partition(".")[0]
    return importlib.import_module(name) if find_spec(package) and find_spec(name) else None
