"""Wikipedia through the API of MediaWiki: one request gives the matching passages and the articles' introductions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import aiohttp
import orjson

from evenhand.errors import SearchError, UsageError
from evenhand.http import open_session, retry_after
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult
from evenhand.search.web.html_text import plain_text
from evenhand.search.web.polite import LONGEST_WAIT, Pace, user_agent

TRIES = 4
_GAP = 0.2
_TIMEOUT = 20.0
_AT_ONCE = 4
_MOST = 20
"""Introductions that the API gives at once."""
_LONGEST_QUERY = 300
"""Characters; the API refuses more."""
_LARGEST_REPLY = 4_000_000
_MAX_LAG = 5
"""Seconds by which the database may lag before a polite client waits."""
_PASSING = {"maxlag", "ratelimited", "readonly"}
"""Errors of the API that pass."""
_LANGUAGE = re.compile(r"[a-z]{2,12}(-[a-z]{2,12})*")
_TAG = re.compile(r"<[^<>]*>")


class _Passing(Exception):  # noqa: N818 - a signal between two functions
    """A failure that may pass, with the pause that the server asks for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@SEARCHES.register("wikipedia")
class WikipediaSearch(SearchProvider):
    """Articles of Wikipedia with their introductions; `wikipedia:de` for another language than English."""

    name: ClassVar[str] = "wikipedia"
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
            raise UsageError(f"{language!r} is no language code of Wikipedia; write wikipedia:de, for example.")
        self.argument = argument
        self._url = (base_url or f"https://{language}.wikipedia.org") + "/w/api.php"
        self._pace = pace or Pace(_GAP)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None

    def fingerprint(self) -> Mapping[str, Any]:
        return {"search": self.name, "language": self.argument or "en"}

    async def search(self, query: str, limit: int) -> SearchResult:
        parameters = _parameters(query, limit)
        if not parameters["srsearch"]:
            return self.found(query, ())
        async with self._places:
            reply = await self._ask(parameters)
        return self.found(query, _hits(reply)[:limit])

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        failures = 0
        while True:
            await self._pace.turn()
            try:
                return await self._get(parameters)
            except _Passing as fault:
                failures += 1
                if failures == TRIES or (fault.wait or 0) > LONGEST_WAIT:
                    raise SearchError(f"Wikipedia cannot be asked now: {fault}.") from fault
                await self._pace.back_off(failures, fault.wait)

    async def _get(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        session = self._session or self._open()
        try:
            async with session.get(self._url, params=parameters, allow_redirects=False) as response:
                wait = retry_after(response.headers)
                if response.status == 429 or response.status >= 500:
                    raise _Passing(f"it answered {response.status}", wait)
                if response.status != 200:
                    raise SearchError(f"Wikipedia answered {response.status} instead of results.")
                payload = await _bounded(response)
        except TimeoutError as error:
            raise _Passing("it did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Passing(f"it cannot be reached ({str(error) or type(error).__name__})") from error
        return _read(payload, wait)

    def _open(self) -> aiohttp.ClientSession:
        self._session = open_session({"User-Agent": user_agent()}, self._timeout)
        return self._session


def _parameters(query: str, limit: int) -> dict[str, str]:
    """The list has the matching passages, the generator the articles; both are ordered by relevance."""
    wanted = " ".join(query.split())[:_LONGEST_QUERY]
    count = str(max(1, min(limit, _MOST)))
    return {
        "action": "query", "format": "json", "formatversion": "2", "utf8": "1", "maxlag": str(_MAX_LAG),
        "list": "search", "srsearch": wanted, "srlimit": count, "srnamespace": "0", "srprop": "snippet",
        "generator": "search", "gsrsearch": wanted, "gsrlimit": count, "gsrnamespace": "0",
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
        raise SearchError("Wikipedia answered with something that is not a reply of its API.") from fault
    if code in _PASSING:
        raise _Passing(f"it says {code}", wait)
    if error:
        raise SearchError(f"Wikipedia refused the search ({code}): {' '.join(info.split())[:200]}")
    return reply


def _hits(reply: Mapping[str, Any]) -> list[Hit]:
    # A search that finds nothing has no pages at all.
    found: Any = reply.get("query") or {}
    try:
        snippets = {row["pageid"]: _plain(row["snippet"]) for row in found.get("search", [])}
        pages = sorted(found.get("pages", []), key=lambda page: page["index"])
        return [
            Hit(str(page["title"]), str(page["fullurl"]), snippets.get(page["pageid"], ""), page.get("extract") or "")
            for page in pages
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise SearchError("Wikipedia's results do not have the form that its API promises.") from error


def _plain(snippet: str) -> str:
    """A passage without the marks around the words that were found."""
    return " ".join(plain_text(_TAG.sub("", snippet)).split())
