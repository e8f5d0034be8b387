"""Web search through the package ddgs, which reads the result pages of several search engines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from evenhand.core import http
from evenhand.core.errors import MissingExtraError, SearchError, check_names
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult

DEFAULT_ENGINES = ("duckduckgo", "brave", "mojeek", "startpage")
"""The default: four engines, each with its own index."""
TRIES = 4
_SELF = "the search provider ddgs"
_GAP = 1.0
_AT_ONCE = 4
_REQUEST_LIMIT = 10
"""Seconds for one request."""
_QUERY_LIMIT = 60.0
"""Seconds for one query with all retries, not counting its time in the queue."""
_RESULTS = 10
"""Least results per request, about one page of an engine; some of them may be unusable."""


class Pace(http.Pace):
    """A rate limit of one request every `gap` seconds, with backoff between retries."""

    async def back_off(self, failures: int) -> None:
        """Wait after failure number `failures` (from 1), exponentially longer each time; with jitter."""
        await self._sleep(2.0**failures * random.uniform(0.5, 1))


@SEARCHES.register("ddgs")
class DdgsSearch(SearchProvider):
    """Web search by several engines in turn; `ddgs:brave+mojeek` selects them.

    Each query starts with the next engine; if that fails, the one after it is tried.
    """

    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "argument"
    web: ClassVar[bool] = True

    def __init__(self, argument: str | None = None, *, pace: Pace | None = None, limit_s: float = _QUERY_LIMIT) -> None:
        if not find_spec("ddgs"):
            raise MissingExtraError(_SELF, "search")
        self.argument = argument
        self.engines = _engines(argument)
        self._pace = pace or Pace(_GAP)
        self._limit_s = limit_s
        self._queries = 0
        self._semaphore = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    def unavailable(cls) -> str | None:
        return None if find_spec("ddgs") else str(MissingExtraError(_SELF, "search"))

    def fingerprint(self) -> Mapping[str, Any]:
        return {"search": self.spec, "engines": list(self.engines)}

    async def search(self, query: str, limit: int) -> SearchResult:
        first, self._queries = self._queries, self._queries + 1
        # The time limit does not include the queue: many concurrent queries take longer, but do not fail.
        async with self._semaphore:
            try:
                async with asyncio.timeout(self._limit_s):
                    return await self._search(query, limit, first)
            except TimeoutError as error:
                raise SearchError(f"The web search was stopped after more than {self._limit_s:g} s.") from error

    async def _search(self, query: str, limit: int, first: int) -> SearchResult:
        failures: dict[str, str] = {}
        for attempt in range(TRIES):
            engine = self.engines[(first + attempt) % len(self.engines)]
            if attempt:
                await self._pace.back_off(attempt)
            await self._pace.turn()
            try:
                rows = await asyncio.to_thread(_request, query, engine, max(limit, _RESULTS))
            except Exception as error:  # the package parses untrusted pages and may raise anything
                failures[engine] = " ".join(str(error).split())[:80] or type(error).__name__
                continue
            if hits := _hits(rows):
                return replace(self.result(query, hits[:limit]), provider=f"{self.name}:{engine}")
            failures[engine] = "no results with a web address"
        # A blocked request looks just like an empty result, so this never counts as "no hits".
        reasons = "; ".join(f"{engine}: {reason}" for engine, reason in failures.items())
        raise SearchError(f"No search engine returned results; they may be blocking requests for now ({reasons}).")


def _engines(argument: str | None) -> tuple[str, ...]:
    from ddgs.engines import ENGINES

    available = ENGINES["text"]
    if argument is None:
        return tuple(engine for engine in DEFAULT_ENGINES if engine in available)
    engines = tuple(dict.fromkeys(argument.split("+")))
    check_names("search engine of ddgs", available, *engines)
    return engines


def _request(query: str, engine: str, limit: int) -> list[dict[str, Any]]:
    """Send one request, with a client of its own, since clients are not thread-safe."""
    import ddgs

    client: Any = ddgs.DDGS(timeout=_REQUEST_LIMIT)  # pyright: ignore[reportUnknownMemberType]
    return client.text(query, backend=engine, max_results=limit)


def _hits(rows: list[dict[str, Any]]) -> list[Hit]:
    hits = [Hit(str(row.get("title", "")), str(row.get("href", "")), str(row.get("body", ""))) for row in rows]
    return [hit for hit in hits if hit.url.lower().startswith(("http://", "https://"))]
