"""Wikipedia's API, as a real local server speaks it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from evenhand.core.errors import SearchError, UsageError
from evenhand.search.base import load_provider
from evenhand.search.web.wikipedia import TRIES, WikipediaSearch

RESULTS = {
    "query": {
        "search": [
            {"pageid": 7, "title": "Old age", "snippet": 'the <span class="searchmatch">elderly</span> &amp; others'},
            {"pageid": 3, "title": "Driver", "snippet": "drives"},
        ],
        "pages": [
            {"pageid": 3, "title": "Driver", "index": 2, "fullurl": "https://en.wikipedia.org/wiki/Driver"},
            {
                "pageid": 7,
                "title": "Old age",
                "index": 1,
                "fullurl": "https://en.wikipedia.org/wiki/Old_age",
                "extract": "Old age is the range of ages …",
            },
        ],
    }
}


class Api:
    """Gives the replies in turn, the last one for ever: a body, or (status, headers, body)."""

    def __init__(self, *replies: Any) -> None:
        self.replies = [reply if isinstance(reply, tuple) else (200, {}, reply) for reply in replies]
        self.requests: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        status, headers, body = self.replies[min(len(self.requests), len(self.replies)) - 1]
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return web.Response(body=data, status=status, headers=headers, content_type="application/json")


Ask = Callable[[Api], Awaitable[WikipediaSearch]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """`await ask(api)` starts a server and gives the provider that asks it."""
    closing: list[Any] = []

    async def start(api: Api) -> WikipediaSearch:
        app = web.Application()
        app.router.add_get("/w/api.php", api.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        provider = WikipediaSearch(None, base_url=url)
        closing.extend((provider.aclose, runner.cleanup))
        return provider

    yield start
    for close in closing:
        await close()


async def test_hits_have_the_passage_and_the_introduction_best_first(ask: Ask):
    api = Api(RESULTS)

    found = await (await ask(api)).search(" older  drivers ", 5)

    assert found.provider == "wikipedia"
    assert [hit.title for hit in found.hits] == ["Old age", "Driver"]
    assert found.hits[0].url == "https://en.wikipedia.org/wiki/Old_age"
    assert found.hits[0].snippet == "the elderly & others"
    assert found.hits[0].text == "Old age is the range of ages …"
    assert found.hits[1].text == ""


async def test_the_request_is_one_and_polite(ask: Ask):
    api = Api(RESULTS)

    await (await ask(api)).search(" older  drivers ", 5)

    (request,) = api.requests
    assert request.query["srsearch"] == request.query["gsrsearch"] == "older drivers"
    assert request.query["gsrlimit"] == "5"
    assert request.query["maxlag"]
    assert request.headers["User-Agent"].startswith("evenhand/")
    assert "Cookie" not in request.headers


async def test_limits_of_the_api_are_kept(ask: Ask):
    api = Api(RESULTS)

    found = await (await ask(api)).search("word " * 200, 1)

    assert len(api.requests[0].query["srsearch"]) <= 300
    assert len(found.hits) == 1


async def test_a_search_that_finds_nothing_is_an_answer(ask: Ask):
    api = Api({"batchcomplete": True, "query": {"search": []}})
    provider = await ask(api)

    assert (await provider.search("qwzx", 5)).hits == ()
    assert (await provider.search("  ", 5)).hits == ()
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    "passing",
    [
        (429, {"Retry-After": "3"}, b""),
        (503, {"Retry-After": "3"}, b"down"),
        (200, {"Retry-After": "3"}, {"error": {"code": "maxlag", "info": "Waiting for a database server"}}),
    ],
)
async def test_what_passes_is_tried_again_after_the_pause_asked_for(ask: Ask, waits: list[float], passing: Any):
    api = Api(passing, RESULTS)

    found = await (await ask(api)).search("q", 5)

    assert len(found.hits) == 2
    assert 3 <= waits[0] <= 4


@pytest.mark.usefixtures("waits")
async def test_a_server_that_stays_down_is_given_up(ask: Ask):
    api = Api((500, {}, b"no"))

    with pytest.raises(SearchError, match="it answered 500"):
        await (await ask(api)).search("q", 5)

    assert len(api.requests) == TRIES


async def test_a_pause_that_is_too_long_is_not_waited_for(ask: Ask, waits: list[float]):
    api = Api((429, {"Retry-After": "3600"}, b""))

    with pytest.raises(SearchError, match="429"):
        await (await ask(api)).search("q", 5)

    assert len(api.requests) == 1
    assert waits == []


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ((403, {}, b"no"), "answered 403"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "answered 302"),
        (b"<html>", "not a valid API reply"),
        ([1], "not a valid API reply"),
        ({"error": {"code": "badvalue", "info": "Unrecognized value"}}, r"rejected the search \(badvalue\)"),
        ({"query": {"pages": [{"title": "x"}]}}, "do not have the documented form"),
        (b"[" + b"0," * 2_100_000 + b"0]", "too large"),
    ],
)
async def test_a_bad_reply_is_one_sentence_and_not_tried_again(ask: Ask, reply: Any, sentence: str):
    api = Api(reply)

    with pytest.raises(SearchError, match=sentence):
        await (await ask(api)).search("q", 5)

    assert len(api.requests) == 1


@pytest.mark.usefixtures("waits")
async def test_a_server_that_is_not_there_is_one_sentence():
    provider = WikipediaSearch("de", base_url="http://127.0.0.1:9")

    with pytest.raises(SearchError, match="cannot be reached"):
        await provider.search("q", 5)
    await provider.aclose()


@pytest.mark.parametrize("code", ["EN", "e", "en.evil.org/", "en-", "../x", "en@evil"])
def test_what_is_no_language_code_is_refused(code: str):
    with pytest.raises(UsageError, match="language code"):
        load_provider(f"wikipedia:{code}")


def test_the_language_is_part_of_the_identity():
    assert load_provider("wikipedia").fingerprint() == load_provider("wikipedia:en").fingerprint()
    assert load_provider("wikipedia:simple").fingerprint() != load_provider("wikipedia").fingerprint()
