"""The response cache: one SQLite file shared by all runs, keyed by the full request. A hit costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evenhand.core.errors import StoreError
from evenhand.core.sqlite import connect, reason, transaction
from evenhand.core.types import Generation, Message, Params, Usage
from evenhand.models.base import Model, WrappedModel
from evenhand.models.request import as_stored, generation_from, model_identity, pack, request_key, unpack

_FLUSH_EVERY = 256
_FLUSH_SECONDS = 5.0
"""Replies are written after this many, or this many seconds after the last time: slow ones are dear."""
_LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that is writing; this blocks all calls."""


class ResponseCache:
    """Request hash → generation. Writes are batched; a failed read or write only warns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = connect(path, synchronous="OFF", busy=_LOCK_TIMEOUT)
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS responses (key BLOB PRIMARY KEY, value BLOB NOT NULL, at REAL NOT NULL)"
                " WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"The response cache {path} cannot be opened ({reason(error)}); pass --no-cache or another --cache."
            ) from error
        self._unwritten: dict[bytes, bytes] = {}
        self._flushed = time.monotonic()

    def get(self, key: bytes) -> Generation | None:
        """Return the cached generation; None if there is none or it cannot be read."""
        blob = self._unwritten.get(key)
        try:
            if blob is None:
                row = self._db.execute("SELECT value FROM responses WHERE key = ?", (key,)).fetchone()
                if row is None:
                    return None
                blob = row[0]
            return _as_hit(generation_from(unpack(blob)))
        except sqlite3.Error as error:
            warnings.warn(f"The response cache {self.path} cannot be read: {error}.", stacklevel=2)
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("DELETE FROM responses WHERE key = ?", (key,))
            warnings.warn(f"The response cache {self.path} holds a damaged entry: {error}.", stacklevel=2)
        return None

    def put(self, key: bytes, generation: Generation) -> None:
        self._unwritten[key] = pack(as_stored(generation))
        if len(self._unwritten) >= _FLUSH_EVERY or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        now, self._flushed = time.time(), time.monotonic()
        rows = [(key, value, now) for key, value in self._unwritten.items()]
        self._unwritten.clear()
        try:
            with transaction(self._db):
                self._db.executemany("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            warnings.warn(f"The response cache {self.path} cannot be written: {error}.", stacklevel=2)

    def close(self) -> None:
        if self._unwritten:
            self.flush()
        self._db.close()


class CachedModel(WrappedModel):
    """A model behind the cache; identical concurrent requests are sent once."""

    def __init__(self, inner: Model, cache: ResponseCache) -> None:
        super().__init__(inner)
        self._cache = cache
        self._identity = model_identity(inner.fingerprint())
        self._under_way: dict[bytes, asyncio.Future[Generation | None]] = {}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        key = request_key(self._identity, messages, params)
        while True:
            hit = self._cache.get(key)
            if hit is not None:
                return hit
            under_way = self._under_way.get(key)
            if under_way is None:
                return await self._ask(key, messages, params)
            shared = await asyncio.shield(under_way)
            if shared is not None:
                return _as_hit(shared)

    async def _ask(self, key: bytes, messages: Sequence[Message], params: Params) -> Generation:
        """Call the model; identical requests that arrive meanwhile wait for this result."""
        future = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            generation = await self.inner.generate(messages, params)
        except BaseException as error:
            del self._under_way[key]
            if isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # nobody else may be waiting
            else:  # only this caller was cancelled: the next one calls the model
                future.set_result(None)
            raise
        del self._under_way[key]
        future.set_result(generation)
        self._cache.put(key, generation)
        return generation


def _as_hit(generation: Generation) -> Generation:
    return replace(generation, cached=True, latency=0.0, usage=Usage(calls=0, cached_calls=1))
