"""Reads and decodes the body of an untrusted reply, with a size limit after decompression."""

from __future__ import annotations

import codecs
import re
import zlib
from typing import TYPE_CHECKING

from evenhand.core.errors import SearchError

if TYPE_CHECKING:
    from aiohttp import ClientResponse

ACCEPTED_ENCODING = "gzip"
_CHUNK = 1 << 16
_GZIP = 31
"""The zlib window size that selects the gzip format."""
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
_SIMPLE = ("iso8859-", "cp125", "koi8-", "mac-")
_OTHERS = frozenset({
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "gb2312", "gbk", "gb18030", "big5", "big5hkscs",
    "shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "cp874", "tis-620",
})  # fmt: skip


async def read_body(response: ClientResponse, most: int) -> tuple[bytes, bool]:
    """Return the first `most` bytes after decompression, and whether the body is complete."""
    unpack = _unpacker(response.headers.get("Content-Encoding", ""))
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        # One byte beyond the limit distinguishes a body that just fits from one that does not.
        body += unpack.decompress(chunk, most + 1 - len(body)) if unpack else chunk
        if len(body) > most:
            return bytes(body[:most]), False
        if unpack and unpack.eof:  # ignore anything after the end of the stream
            break
    return bytes(body), True


def decode(body: bytes, charset: str | None) -> str:
    """Decode with the charset of the reply, else of the page, else UTF-8; invalid bytes are replaced."""
    match = None if charset else _CHARSET.search(body, 0, 2_048)
    named = match[1].decode("ascii", "replace") if match else charset or "utf-8"
    return body.decode(_codec(named), "replace")


def _unpacker(encoding: str) -> zlib._Decompress | None:  # pyright: ignore[reportPrivateUsage] - it has no other name
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(_GZIP)
        case _:
            raise SearchError("The page has a compression that was not requested.")


def _codec(name: str) -> str:
    """Return the codec if web pages use it, else UTF-8; others of Python's (punycode, …) can be made very slow."""
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return known if known in _OTHERS or known.startswith(_SIMPLE) else "utf-8"
