"""The response cache: one SQLite file, keyed by the full request, shared by runs; a hit is marked and costs nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.errors import StoreError
from evenhand.models.base import Feature, Model
from evenhand.models.request import generation_from, model_identity, pack, request_key, unpack
from evenhand.types import Generation, Message, Params, Usage

_FLUSH_EVERY = 256


class ResponseCache:
    """Request hash → generation. Writes are batched; a cache that cannot be written only warns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=OFF")  # a lost cache entry costs one call, not a result
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS responses (key BLOB PRIMARY KEY, value BLOB NOT NULL, at REAL NOT NULL)"
                " WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"The response cache {path} cannot be opened ({error}); pass --no-cache or another --cache."
            ) from error
        self._unwritten: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> Generation | None:
        blob = self._unwritten.get(key)
        if blob is None:
            row = self._db.execute("SELECT value FROM responses WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            blob = row[0]
        stored = generation_from(unpack(blob))
        return replace(stored, cached=True, latency=0.0, usage=Usage(calls=0, cached_calls=1))

    def put(self, key: bytes, generation: Generation) -> None:
        self._unwritten[key] = pack(generation)
        if len(self._unwritten) >= _FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        now = time.time()
        rows = [(key, value, now) for key, value in self._unwritten.items()]
        self._unwritten.clear()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            warnings.warn(f"The response cache {self.path} cannot be written: {error}.", stacklevel=2)

    def close(self) -> None:
        if self._unwritten:
            self.flush()
        self._db.close()


class CachedModel(Model):
    """A model behind the cache; identical requests that are under way at the same time are made once."""

    def __init__(self, inner: Model, cache: ResponseCache) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.free = inner.free  # pyright: ignore[reportAttributeAccessIssue, reportIncompatibleVariableOverride]
        self._cache = cache
        self._identity = model_identity(inner.fingerprint())
        self._under_way: dict[bytes, asyncio.Future[Generation]] = {}

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.features

    def fingerprint(self) -> Mapping[str, Any]:
        return self.inner.fingerprint()

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        key = request_key(self._identity, messages, params)
        hit = self._cache.get(key)
        if hit is not None:
            return hit
        under_way = self._under_way.get(key)
        if under_way is not None:
            return replace(
                await asyncio.shield(under_way),
                cached=True,
                latency=0.0,
                usage=Usage(calls=0, cached_calls=1),
            )
        future = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            generation = await self.inner.generate(messages, params)
        except BaseException as error:
            del self._under_way[key]
            if isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # nobody else may be waiting
            else:
                future.cancel()
            raise
        self._cache.put(key, generation)
        del self._under_way[key]
        future.set_result(generation)
        return generation
