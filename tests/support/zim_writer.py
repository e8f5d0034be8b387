"""Writes tiny ZIM files for tests: one cluster for each packing that is asked for."""

import lzma
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MIMES = ("text/html", "text/css")
HEADER = "<IHH16sIIQQQQIIQ"


@dataclass(frozen=True)
class Entry:
    """`text` None makes a redirect to the first entry."""

    path: str
    title: str = ""
    text: str | None = ""
    namespace: str = "C"
    mime: int = 0


def plain(data: bytes) -> bytes:
    return b"\x01" + data


def xz(data: bytes) -> bytes:
    return b"\x04" + lzma.compress(data)


def extended(data: bytes) -> bytes:
    """For clusters whose offsets have 8 bytes."""
    return b"\x11" + data


def cluster(texts: Sequence[bytes], width: int = 4) -> bytes:
    """The texts behind their offsets, not packed yet."""
    offsets = [width * (len(texts) + 1)]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return b"".join(offset.to_bytes(width, "little") for offset in offsets) + b"".join(texts)


def write_zim(
    path: Path,
    entries: Sequence[Entry],
    pack: Callable[[bytes], bytes] = plain,
    *,
    body: bytes | None = None,
    clusters: int = 1,
) -> None:
    """A ZIM file with all texts in one cluster; `body` replaces that cluster, `clusters` its claimed number."""
    texts = [entry.text.encode() for entry in entries if entry.text is not None]
    packed = body if body is not None else pack(cluster(texts, 8 if pack is extended else 4))
    mimes = b"".join(mime.encode() + b"\0" for mime in MIMES) + b"\0"
    records = _records(entries)
    mime_start = struct.calcsize(HEADER)
    records_start = mime_start + len(mimes)
    pointers_start = records_start + sum(map(len, records))
    cluster_pointers = pointers_start + 8 * len(entries)
    cluster_start = cluster_pointers + 8
    end = cluster_start + len(packed)
    header = struct.pack(
        HEADER, 72173914, 6, 1, b"u" * 16, len(entries), clusters, pointers_start, 0, cluster_pointers, mime_start,
        0xFFFFFFFF, 0xFFFFFFFF, end,
    )  # fmt: skip
    pointers, start = b"", records_start
    for record in records:
        pointers += struct.pack("<Q", start)
        start += len(record)
    parts = (header, mimes, *records, pointers, struct.pack("<Q", cluster_start), packed, b"c" * 16)
    path.write_bytes(b"".join(parts))


def _records(entries: Sequence[Entry]) -> list[bytes]:
    records: list[bytes] = []
    blob = 0
    for entry in entries:
        names = f"{entry.path}\0{entry.title}\0".encode()
        space = entry.namespace.encode()
        if entry.text is None:
            records.append(struct.pack("<HBcII", 0xFFFF, 0, space, 0, 0) + names)
        else:
            records.append(struct.pack("<HBcIII", entry.mime, 0, space, 0, 0, blob) + names)
            blob += 1
    return records
