"""The hash chain: every row has the hash of its values and of the hash before it.

A row that is changed, inserted or removed breaks the chain from there on. With a key the hashes are HMACs, so that
somebody who may write to the file, but does not know the key, cannot compute a new chain.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import Any

import orjson

from evenhand.core.errors import PlanError

START = bytes(32)
"""What stands in place of the hash before the first row."""

SHORTEST_KEY = 16
"""In bytes."""


def key_from(variable: str) -> bytes:
    """Return the key of the chain from an environment variable."""
    key = os.environ.get(variable, "").encode("utf-8", "surrogateescape")
    if len(key) < SHORTEST_KEY:
        state = f"has fewer than {SHORTEST_KEY} bytes" if key else "is not set"
        raise PlanError(f"The environment variable {variable} {state}; it must hold the key of the audit file.")
    return key


@dataclass(frozen=True, slots=True)
class Link:
    """A row's number and hash."""

    number: int = 0
    hash: bytes = START


class Hasher:
    """Computes the hashes of one file."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self.key_id = self._digest(b"key").hex()[:16] if key else ""
        """Tells keys apart and reveals nothing about them; "" without a key."""

    def row(self, before: bytes, kind: str, values: tuple[Any, ...]) -> bytes:
        return self._digest(before + orjson.dumps([kind, *values]))

    def head(self, last: bytes) -> bytes:
        """Return the seal of the last row: without the key, nobody can make an earlier row the last one."""
        return self._digest(b"head" + last)

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256") if self._key else hashlib.sha256(data).digest()
