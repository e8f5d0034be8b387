"""Searches with a provider, adds page texts, removes invisible characters, and caches the results."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.aio import all_of, cancelled
from evenhand.core.errors import DataError, SearchError
from evenhand.core.sqlite import connect
from evenhand.search.base import Hit, SearchProvider, SearchResult, load_provider
from evenhand.search.replay import read_result, result_row
from evenhand.search.web.fetch import LONGEST_URL, SafeFetcher
from evenhand.search.web.pages import LONGEST_TITLE, PageReader, tidy, tidy_line


class SearchCache:
    """Search key → result with its time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the file is not used, or no longer used."""
        self._db: sqlite3.Connection | None = None
        try:
            self._db = connect(path, synchronous="OFF", busy=5)
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS searches"
                " (key BLOB PRIMARY KEY, query TEXT NOT NULL, time TEXT NOT NULL, found BLOB NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: bytes) -> SearchResult | None:
        """Return the cached result; None if there is none or it cannot be read."""
        if self._db is None:
            return None
        try:
            row = self._db.execute("SELECT found FROM searches WHERE key = ?", (key,)).fetchone()
            return None if row is None else read_result(orjson.loads(row[0]))
        except sqlite3.Error as error:
            self._give_up(error)
        except (DataError, ValueError, TypeError):
            pass  # a damaged entry is searched again and overwritten
        return None

    def put(self, key: bytes, result: SearchResult) -> None:
        if self._db is None:
            return
        try:
            row = (key, result.query, result.time, orjson.dumps(result_row(result)))
            self._db.execute("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _give_up(self, error: Exception) -> None:
        self.problem = f"the search cache {self.path} cannot be used ({error}); searches were made without it"
        self.close()


def search_key(**inputs: Any) -> bytes:
    """Return a hash of everything that determines the result of a search."""
    return hashlib.sha256(orjson.dumps(inputs, option=orjson.OPT_SORT_KEYS)).digest()


LONGEST_QUERY = 400


class Searcher:
    """Searches: `await searcher.find(query)`; identical concurrent searches are made once, and results are cached.

    An empty result is cached, a failure is not.
    """

    def __init__(
        self,
        provider: SearchProvider,
        fetcher: SafeFetcher | None = None,
        cache: Path | None = None,
        reader: PageReader | None = None,
    ) -> None:
        self.provider = provider
        self._fetcher = (fetcher or SafeFetcher()) if provider.web else None
        self._reader = (reader or PageReader()) if provider.web else None
        self._cache = SearchCache(cache) if cache else None
        self._under_way: dict[bytes, asyncio.Task[SearchResult]] = {}
        self._pages = 0
        self._unread = 0
        self._first_reason = ""

    @property
    def spec(self) -> str:
        return self.provider.spec

    def fingerprint(self) -> Mapping[str, Any]:
        return self.provider.fingerprint()

    @cached_property
    def _source(self) -> dict[str, Any]:
        return dict(self.fingerprint())

    def caveats(self) -> list[str]:
        """Return limitations that readers of the results should know."""
        caveats: list[str] = []
        if self._cache and self._cache.problem:
            caveats.append(self._cache.problem)
        if self._unread:
            some = f"{self._unread:,} of {self._pages:,} web pages could not be read"
            caveats.append(f"{some}, only their snippets were used (the first: {self._first_reason.rstrip('.')})")
        return caveats

    async def find(self, query: str, *, limit: int = 5, pages: int = 3) -> SearchResult:
        """Return at most `limit` hits; of web hits, the first `pages` with page texts."""
        query = tidy_line(query, LONGEST_QUERY)
        if not query:
            raise SearchError("The query is empty.")
        pages = min(pages, limit) if self.provider.web else 0
        key = search_key(source=self._source, query=query, limit=limit, pages=pages)
        task = self._under_way.get(key)
        if task is None:
            if self._cache and (cached := self._cache.get(key)):
                return cached
            task = self._under_way[key] = asyncio.create_task(self._find(key, query, limit, pages))
            task.add_done_callback(lambda task: self._ended(key, task))
        # If the first caller is cancelled, the others still need the result.
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        await cancelled(self._under_way.values())
        if self._fetcher:
            await self._fetcher.aclose()
        if self._reader:
            await self._reader.aclose()
        await self.provider.aclose()
        if self._cache:
            self._cache.close()

    async def _find(self, key: bytes, query: str, limit: int, pages: int) -> SearchResult:
        result = await self.provider.search(query, limit)
        hits = result.hits[:limit]
        with_text = await all_of(self._with_page(hit) for hit in hits[:pages])
        result = replace(result, query=query, hits=tuple(_tidied(hit) for hit in (*with_text, *hits[pages:])))
        if self._cache:
            self._cache.put(key, result)
        return result

    async def _with_page(self, hit: Hit) -> Hit:
        """Return the hit with the text of its page, or unchanged if that cannot be read."""
        assert self._fetcher and self._reader
        self._pages += 1
        try:
            page = await self._fetcher.fetch(hit.url)
            title, text = await self._reader.read(page)
        except SearchError as error:
            self._unread += 1
            self._first_reason = self._first_reason or str(error)
            return hit
        return replace(hit, title=hit.title or title, text=text)

    def _ended(self, key: bytes, task: asyncio.Task[SearchResult]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, since nobody may be waiting any more


def load_search(spec: str, cache: Path | None = None) -> Searcher:
    """Load the search named by `spec`; results are kept in the cache file if one is given."""
    return Searcher(load_provider(spec), cache=cache)


def _tidied(hit: Hit) -> Hit:
    """Return the hit without invisible characters."""
    title, url = tidy_line(hit.title, LONGEST_TITLE), tidy_line(hit.url, LONGEST_URL)
    return Hit(title, url, tidy(hit.snippet), tidy(hit.text))
