"""Wikipedia search through the MediaWiki API: one request returns matching passages and article introductions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import orjson

from evenhand.core.errors import EndpointError, ModelError, SearchError, UsageError
from evenhand.core.http import Client, Hints, Reply, Retryable, retry_after
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult
from evenhand.search.web.fetch import user_agent
from evenhand.search.web.pages import plain_text

TRIES = 4
_LONGEST_WAIT = 30.0
"""Seconds; a longer Retry-After counts as down: a user may be waiting for the hits."""
_MOST = 20
"""Most introductions per request, a limit of the API."""
_LONGEST_QUERY = 300
"""Most characters of a query, a limit of the API."""
_MAX_LAG = 5
"""Seconds of database lag beyond which the API asks clients to wait."""
_TRANSIENT = {"maxlag", "ratelimited", "readonly"}
"""API errors that are worth a retry."""
_LANGUAGE = re.compile(r"[a-z]{2,12}(-[a-z]{2,12})*")
_TAG = re.compile(r"<[^<>]*>")


@SEARCHES.register("wikipedia")
class WikipediaSearch(SearchProvider):
    """Wikipedia articles with their introductions; `wikipedia:de` selects a language other than English."""

    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "argument"

    def __init__(self, argument: str | None = None, *, base_url: str | None = None) -> None:
        language = argument or "en"
        if not _LANGUAGE.fullmatch(language):
            raise UsageError(f"{language!r} is not a Wikipedia language code; write e.g. wikipedia:de.")
        self.argument = argument
        host = f"{language}.wikipedia.org"
        self._client = Client(
            (base_url or f"https://{host}") + "/w/api.php",
            host,
            "",
            Hints("the language code or the network"),
            headers={"User-Agent": user_agent()},
            timeout=20.0,
            retries=TRIES - 1,
            concurrency=4,
            per_second=5.0,
            largest=4 * 2**20,
            method="GET",
        )

    def fingerprint(self) -> Mapping[str, Any]:
        return {"search": self.name, "language": self.argument or "en"}

    async def search(self, query: str, limit: int) -> SearchResult:
        parameters = _parameters(query, limit)
        if not parameters["srsearch"]:
            return self.result(query, ())
        try:
            hits, _ = await self._client.post(bytes, _hits, query=parameters)
        except ModelError as error:
            raise SearchError(str(error)) from error
        return self.result(query, hits[:limit])

    async def aclose(self) -> None:
        await self._client.aclose()


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


def _hits(reply: Reply) -> list[Hit]:
    # Without matches, the reply has no pages at all.
    results: Any = _read(reply).get("query") or {}
    try:
        # Without the markup around the matched words.
        plain = {row["pageid"]: plain_text(_TAG.sub("", row["snippet"])) for row in results.get("search", [])}
        snippets = {page: " ".join(text.split()) for page, text in plain.items()}
        pages = sorted(results.get("pages", []), key=lambda page: page["index"])
        return [
            Hit(str(page["title"]), str(page["fullurl"]), snippets.get(page["pageid"], ""), page.get("extract") or "")
            for page in pages
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise SearchError("Wikipedia's results do not have the documented form.") from error


def _read(reply: Reply) -> Mapping[str, Any]:
    wait = retry_after(reply.headers)
    if reply.status == 429 or reply.status >= 500:
        raise _passing(f"it answered {reply.status}", wait)
    if reply.status != 200:
        raise SearchError(f"Wikipedia answered {reply.status} instead of results.")
    try:
        value: Any = orjson.loads(reply.body)
        error: Any = value.get("error")
        code, info = (str(error["code"]), str(error["info"])) if error else ("", "")
    except (ValueError, LookupError, TypeError, AttributeError) as fault:
        raise SearchError("Wikipedia's answer is not a valid API reply.") from fault
    if code in _TRANSIENT:
        raise _passing(f"it reports {code}", wait)
    if error:
        raise SearchError(f"Wikipedia rejected the search ({code}): {' '.join(info.split())[:200]}")
    return value


def _passing(reason: str, wait: float | None) -> Exception:
    message = f"Wikipedia is not available now: {reason}."
    return SearchError(message) if (wait or 0) > _LONGEST_WAIT else Retryable(EndpointError(message), wait)
