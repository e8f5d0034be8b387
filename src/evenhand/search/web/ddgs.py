"""Web search through the package ddgs, which reads the result pages of several engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from evenhand.errors import MissingExtraError, SearchError, UnknownNameError
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult
from evenhand.search.web.polite import Pace

DEFAULT_ENGINES = ("duckduckgo", "brave", "mojeek", "startpage")
"""Used unless others are named: four engines with an index of their own each."""
TRIES = 4
_SELF = "The search provider ddgs"
_GAP = 1.0
_AT_ONCE = 4
_REQUEST_LIMIT = 10
"""Seconds for one request."""
_QUERY_LIMIT = 60.0
"""Seconds for one query with all its tries, counted from its turn."""
_ASKED_FOR = 10
"""Results per request: about a page of an engine, so that some may be left out."""


@SEARCHES.register("ddgs")
class DdgsSearch(SearchProvider):
    """Web search by several engines in turn; `ddgs:brave+mojeek` names them.

    Each query starts with the next engine, and goes on with the one after it when that fails.
    """

    name: ClassVar[str] = "ddgs"
    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "argument"
    web: ClassVar[bool] = True

    def __init__(self, argument: str | None = None, *, pace: Pace | None = None, limit_s: float = _QUERY_LIMIT) -> None:
        if not find_spec("ddgs"):
            raise MissingExtraError(_SELF, "search")
        self.argument = argument
        self.engines = _engines(argument)
        self._pace = pace or Pace(_GAP)
        self._limit_s = limit_s
        self._asked = 0
        self._places = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    def unavailable(cls) -> str | None:
        return None if find_spec("ddgs") else str(MissingExtraError(_SELF, "search"))

    def fingerprint(self) -> Mapping[str, Any]:
        return {"search": self.spec, "engines": list(self.engines)}

    async def search(self, query: str, limit: int) -> SearchResult:
        first, self._asked = self._asked, self._asked + 1
        # The time limit starts behind the queue: many queries at once only take longer, they do not fail.
        async with self._places:
            try:
                async with asyncio.timeout(self._limit_s):
                    return await self._search(query, limit, first)
            except TimeoutError as error:
                raise SearchError(f"The web search took more than {self._limit_s:g} s and was given up.") from error

    async def _search(self, query: str, limit: int, first: int) -> SearchResult:
        said: dict[str, str] = {}
        for attempt in range(TRIES):
            engine = self.engines[(first + attempt) % len(self.engines)]
            if attempt:
                await self._pace.back_off(attempt)
            await self._pace.turn()
            try:
                rows = await asyncio.to_thread(_ask, query, engine, max(limit, _ASKED_FOR))
            except Exception as error:  # the package reads pages of strangers and may stumble over anything
                said[engine] = _one_line(error)
                continue
            if hits := _hits(rows):
                return replace(self.found(query, hits[:limit]), provider=f"{self.name}:{engine}")
            said[engine] = "no results with a web address"
        # An engine that refuses looks just like one that finds nothing, so this is never taken as "there is nothing".
        reasons = "; ".join(f"{engine}: {reason}" for engine, reason in said.items())
        raise SearchError(f"No engine brought results, or they take no more requests for now ({reasons}).")


def _engines(argument: str | None) -> tuple[str, ...]:
    from ddgs.engines import ENGINES

    there = ENGINES["text"]
    if argument is None:
        return tuple(engine for engine in DEFAULT_ENGINES if engine in there)
    named = tuple(dict.fromkeys(argument.split("+")))
    for engine in named:
        if engine not in there:
            raise UnknownNameError("search engine of ddgs", engine, there)
    return named


def _ask(query: str, engine: str, limit: int) -> list[dict[str, Any]]:
    """One request; the package is not made for threads that share a client, so each has its own."""
    import ddgs

    client: Any = ddgs.DDGS(timeout=_REQUEST_LIMIT)  # pyright: ignore[reportUnknownMemberType]
    return client.text(query, backend=engine, max_results=limit)


def _hits(rows: list[dict[str, Any]]) -> list[Hit]:
    hits = [Hit(str(row.get("title", "")), str(row.get("href", "")), str(row.get("body", ""))) for row in rows]
    return [hit for hit in hits if hit.url.lower().startswith(("http://", "https://"))]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__
