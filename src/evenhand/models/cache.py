"""The response cache: one SQLite file shared by all runs, keyed by the full request. A hit costs nothing.

A run reuses its own answers. Those of other runs are reused if they must be the same: the model is known by its weights
or pinned to a revision, its endpoint reports the fingerprint that it reported then, or the user asks for it. Otherwise
another model may be behind the same name by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import time
import uuid
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from evenhand.core.errors import StoreError
from evenhand.core.sqlite import connect, migrate, reason, transaction
from evenhand.core.types import Generation, Message, Params, Usage
from evenhand.models.base import Model, WrappedModel
from evenhand.models.request import as_stored, generation_from, model_identity, pack, request_key, unpack

_FLUSH_EVERY = 256
_FLUSH_SECONDS = 5.0
"""Replies are written after this many, or this many seconds after the last time: slow ones are dear."""
_LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that is writing; this blocks all calls."""
_STEPS = (
    "CREATE TABLE IF NOT EXISTS responses (key BLOB PRIMARY KEY, value BLOB NOT NULL, at REAL NOT NULL) WITHOUT ROWID;",
    """
    CREATE TABLE answers (
        key BLOB NOT NULL, scope TEXT NOT NULL, fingerprint TEXT NOT NULL, value BLOB NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (key, scope)
    ) WITHOUT ROWID;
    INSERT INTO answers SELECT key, '', '', value, at FROM responses;
    DROP TABLE responses;
    """,
)
# Ollama always reports `fp_ollama`; llama.cpp, TGI and vLLM report their build or settings. These stay the same when
# other weights are served. Only the hosted services' form stands for a model.
_IDENTIFYING = re.compile(r"(?:^| )fp_[0-9a-f]{8,}\w*$")


class Entry(NamedTuple):
    """A recorded answer."""

    scope: str
    fingerprint: str
    """What the endpoint reported, if that identifies the model; else empty."""
    value: bytes
    at: float


class ResponseCache:
    """Request hash → generations. Writes are batched; a failed read or write only warns."""

    def __init__(self, path: Path, *, reuse: bool = True) -> None:
        """`reuse` trusts the answers of all runs."""
        self.path = path
        self.reuse = reuse
        self.scope = uuid.uuid4().hex
        """The run, or the runs of one command, whose answers these are."""
        try:
            self._db = connect(path, synchronous="OFF", busy=_LOCK_TIMEOUT)
            migrate(self._db, _STEPS)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"The response cache {path} cannot be opened ({reason(error)}); pass --no-cache or another --cache."
            ) from error
        self._unwritten: dict[bytes, Entry] = {}
        self._flushed = time.monotonic()

    def entries(self, key: bytes) -> list[Entry]:
        """Return the answers to a request: that of this scope first, then the latest."""
        if (own := self._unwritten.get(key)) is not None:
            return [own]
        try:
            query = "SELECT scope, fingerprint, value, at FROM answers WHERE key = ?"
            found = [Entry(*row) for row in self._db.execute(query, (key,))]
        except sqlite3.Error as error:
            warnings.warn(f"The response cache {self.path} cannot be read: {error}.", stacklevel=2)
            return []
        # Sorted here, because there is hardly ever more than one.
        if len(found) > 1:
            found.sort(key=lambda each: (each.scope == self.scope, each.at), reverse=True)
        return found

    def read(self, key: bytes, entry: Entry) -> Generation | None:
        """Return an entry as a hit; None if it is damaged, and then it is removed."""
        try:
            return _as_hit(generation_from(unpack(entry.value)), None if entry.scope == self.scope else entry.at)
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("DELETE FROM answers WHERE key = ? AND scope = ?", (key, entry.scope))
            warnings.warn(f"The response cache {self.path} holds a damaged entry: {error}.", stacklevel=2)
        return None

    def put(self, key: bytes, generation: Generation) -> None:
        fingerprint = identifying(generation.fingerprint)
        self._unwritten[key] = Entry(self.scope, fingerprint, pack(as_stored(generation)), time.time())
        if len(self._unwritten) >= _FLUSH_EVERY or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._flushed = time.monotonic()
        rows = [(key, *entry) for key, entry in self._unwritten.items()]
        self._unwritten.clear()
        try:
            with transaction(self._db):
                self._db.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?)", rows)
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
        self._trusted = cache.reuse or inner.fixed
        self._identity = model_identity(inner.fingerprint())
        self._under_way: dict[bytes, asyncio.Future[Generation | None]] = {}
        self._present: set[str] | None = None
        """The fingerprints that the endpoint has reported by now; None before its first reply."""
        self._first = asyncio.Lock()

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        key = request_key(self._identity, messages, params)
        while True:
            entries = self._cache.entries(key)
            for entry in filter(self._may_reuse, entries):
                if (hit := self._cache.read(key, entry)) is not None:
                    return hit
            under_way = self._under_way.get(key)
            if under_way is not None:
                shared = await asyncio.shield(under_way)
                if shared is not None:
                    return _as_hit(shared)
            elif self._present is None and any(each.fingerprint for each in entries):
                # The first reply shows which model is there now; requests that have an answer wait for it.
                async with self._first:
                    if self._present is None:
                        return await self._ask(key, messages, params)
            else:
                return await self._ask(key, messages, params)

    def _may_reuse(self, entry: Entry) -> bool:
        return self._trusted or entry.scope == self._cache.scope or entry.fingerprint in (self._present or ())

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
                self._present = self._present or set()  # the others need not wait for an endpoint that fails
            else:  # only this caller was cancelled: the next one calls the model
                future.set_result(None)
            raise
        del self._under_way[key]
        if self._present is None:
            self._present = set()
        if shown := identifying(generation.fingerprint):
            self._present.add(shown)
        future.set_result(generation)
        self._cache.put(key, generation)
        return generation


@lru_cache(maxsize=256)
def identifying(fingerprint: str) -> str:
    """Return a reported fingerprint if it identifies a model; nothing if it identifies the server's software."""
    return fingerprint if _IDENTIFYING.search(fingerprint) else ""


def _as_hit(generation: Generation, recorded: float | None = None) -> Generation:
    """The same answer at no cost; `recorded` says when, if another run did."""
    usage = Usage(calls=0, cached_calls=1)
    return replace(generation, cached=True, latency=0.0, usage=usage, recorded=recorded)
