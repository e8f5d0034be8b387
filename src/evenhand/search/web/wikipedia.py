"""Wikipedia search through the MediaWiki API: one request returns matching passages and article introductions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import aiohttp
import orjson

from evenhand.core.errors import SearchError, UsageError
from evenhand.core.http import open_session, retry_after
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult
from evenhand.search.web.fetch import LONGEST_WAIT, Pace, user_agent
from evenhand.search.web.pages import plain_text

TRIES = 4
_GAP = 0.2
_TIMEOUT = 20.0
_AT_ONCE = 4
_MOST = 20
"""Most introductions per request, a limit of the API."""
_LONGEST_QUERY = 300
"""Most characters of a query, a limit of the API."""
_LARGEST_REPLY = 4_000_000
_MAX_LAG = 5
"""Seconds of database lag beyond which the API asks clients to wait."""
_TRANSIENT = {"maxlag", "ratelimited", "readonly"}
"""API errors that are worth a retry."""
_LANGUAGE = re.compile(r"[a-z]{2,12}(-[a-z]{2,12})*")
_TAG = re.compile(r"<[^<>]*>")


class _Retryable(Exception):  # noqa: N818 - a signal between two functions
    """A failure that is worth a retry, with the server's Retry-After."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@SEARCHES.register("wikipedia")
class WikipediaSearch(SearchProvider):
    """Wikipedia articles with their introductions; `wikipedia:de` selects a language other than English."""

    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "argument"

    def __init__(
        self,
        argument: str | None = None,
        *,
        base_url: str | None = None,
        pace: Pace | None = None,
    ) -> None:
        language = argument or "en"
        if not _LANGUAGE.fullmatch(language):
            raise UsageError(f"{language!r} is not a Wikipedia language code; write e.g. wikipedia:de.")
        self.argument = argument
        self._url = (base_url or f"https://{language}.wikipedia.org") + "/w/api.php"
        self._pace = pace or Pace(_GAP)
        self._semaphore = asyncio.Semaphore(_AT_ONCE)
        self._timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None

    def fingerprint(self) -> Mapping[str, Any]:
        return {"search": self.name, "language": self.argument or "en"}

    async def search(self, query: str, limit: int) -> SearchResult:
        parameters = _parameters(query, limit)
        if not parameters["srsearch"]:
            return self.result(query, ())
        async with self._semaphore:
            reply = await self._request(parameters)
        return self.result(query, _hits(reply)[:limit])

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        failures = 0
        while True:
            await self._pace.turn()
            try:
                return await self._get(parameters)
            except _Retryable as fault:
                failures += 1
                if failures == TRIES or (fault.wait or 0) > LONGEST_WAIT:
                    raise SearchError(f"Wikipedia is not available now: {fault}.") from fault
                await self._pace.back_off(failures, fault.wait)

    async def _get(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        session = self._session or self._open()
        try:
            async with session.get(self._url, params=parameters, allow_redirects=False) as response:
                wait = retry_after(response.headers)
                if response.status == 429 or response.status >= 500:
                    raise _Retryable(f"it answered {response.status}", wait)
                if response.status != 200:
                    raise SearchError(f"Wikipedia answered {response.status} instead of results.")
                payload = await _bounded(response)
        except TimeoutError as error:
            raise _Retryable("it did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Retryable(f"it cannot be reached ({str(error) or type(error).__name__})") from error
        return _read(payload, wait)

    def _open(self) -> aiohttp.ClientSession:
        self._session = open_session({"User-Agent": user_agent()}, self._timeout)
        return self._session


def _parameters(query: str, limit: int) -> dict[str, str]:
    """Build the request: `list` returns matching passages, `generator` the articles, both ordered by relevance."""
    text = " ".join(query.split())[:_LONGEST_QUERY]
    count = str(max(1, min(limit, _MOST)))
    return {
        "action": "query", "format": "json", "formatversion": "2", "utf8": "1", "maxlag": str(_MAX_LAG),
        "list": "search", "srsearch": text, "srlimit": count, "srnamespace": "0", "srprop": "snippet",
        "generator": "search", "gsrsearch": text, "gsrlimit": count, "gsrnamespace": "0",
        "prop": "extracts|info", "exintro": "1", "explaintext": "1", "exlimit": count, "inprop": "url",
    }  # fmt: skip


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    payload = bytearray()
    async for chunk in response.content.iter_any():
        payload += chunk
        if len(payload) > _LARGEST_REPLY:
            raise SearchError("Wikipedia's reply is too large to be a list of results.")
    return bytes(payload)


def _read(payload: bytes, wait: float | None) -> Mapping[str, Any]:
    try:
        reply: Any = orjson.loads(payload)
        error: Any = reply.get("error")
        code, info = (str(error["code"]), str(error["info"])) if error else ("", "")
    except (ValueError, LookupError, TypeError, AttributeError) as fault:
        raise SearchError("Wikipedia's answer is not a valid API reply.") from fault
    if code in _TRANSIENT:
        raise _Retryable(f"it reports {code}", wait)
    if error:
        raise SearchError(f"Wikipedia rejected the search ({code}): {' '.join(info.split())[:200]}")
    return reply


def _hits(reply: Mapping[str, Any]) -> list[Hit]:
    # Without matches, the reply has no pages at all.
    results: Any = reply.get("query") or {}
    try:
        snippets = {row["pageid"]: _plain(row["snippet"]) for row in results.get("search", [])}
        pages = sorted(results.get("pages", []), key=lambda page: page["index"])
        return [
            Hit(str(page["title"]), str(page["fullurl"]), snippets.get(page["pageid"], ""), page.get("extract") or "")
            for page in pages
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise SearchError("Wikipedia's results do not have the documented form.") from error


def _plain(snippet: str) -> str:
    """Remove the markup around the matched words of a passage."""
    return " ".join(plain_text(_TAG.sub("", snippet)).split())
