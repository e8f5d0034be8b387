"""The live page over HTTP."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any, get_args

import aiohttp
import orjson
import pytest

from evenhand.guards.types import Check, CheckList
from evenhand.server import page as page_module
from evenhand.server.page import OPEN_PATHS, LivePage
from evenhand.server.telemetry.events import KEPT, LONGEST, Events, Recorded
from support.live_page import event, revised, serve

_MARKUP_FROM_TEXT = re.compile(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function")


class Site:
    """The page's server and a client of it."""

    def __init__(self, events: Events, page: LivePage, url: str, client: aiohttp.ClientSession) -> None:
        self.events, self.page, self.url, self.client = events, page, url, client

    async def get_request(self, number: int) -> Any:
        return await self.get(f"/page/requests/{self.page.state()['start']}/{number}")

    async def get(self, path: str) -> Any:
        async with self.client.get(self.url + path) as response:
            assert response.status == 200, path
            return orjson.loads(await response.read())


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(page_module, "TICK", 0.02)
    events = Events()
    page = LivePage(events, lambda: {"support": CheckList()})
    runner = await serve(page)
    async with aiohttp.ClientSession() as client:
        yield Site(events, page, f"http://127.0.0.1:{runner.addresses[0][1]}", client)
        page.close()
    await runner.cleanup()


async def message(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next message of a stream."""
    line = (await response.content.readuntil(b"\n\n")).strip()
    assert line.startswith(b"data: ")
    return orjson.loads(line[6:])


async def test_every_answer_forbids_inline_scripts_frames_and_guessing(site: Site) -> None:
    site.events.publish(event())
    for path in (*OPEN_PATHS, "/page/state", "/page/requests/other/0"):
        async with site.client.get(site.url + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"


async def test_open_paths_hold_no_data(site: Site) -> None:
    site.events.publish(event(prompt="a secret prompt", route="a secret route"))
    for path in OPEN_PATHS:
        async with site.client.get(site.url + path) as response:
            assert response.status == 200
            assert "secret" not in await response.text()


def test_the_page_needs_nothing_from_elsewhere_and_builds_no_markup_from_text() -> None:
    folder = files("evenhand.server.page") / "assets"
    for asset in folder.iterdir():
        text = asset.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*// .*$|; // .*$", "", text, flags=re.MULTILINE), asset.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", text), (
            asset.name
        )
    assert {f"/page/{asset.name}" for asset in folder.iterdir() if asset.name.endswith(".js")} <= OPEN_PATHS


def test_the_list_is_filtered_by_every_action_that_is_recorded() -> None:
    script = (files("evenhand.server.page") / "assets" / "parts.js").read_text(encoding="utf-8")
    signs = re.search(r"const SIGNS = \{(.*?)\};", script, re.DOTALL)
    assert signs
    assert set(re.findall(r'"?([a-z-]+)"?: "', signs[1])) == {*get_args(Recorded), "error"}


async def test_the_state_has_totals_routes_and_rows(site: Site) -> None:
    site.events.publish(event())
    site.events.publish(revised(late=True))
    state = await site.get("/page/state")
    assert state["totals"]["actions"] == {"passed": 1, "revised": 1}
    assert state["totals"]["late"] == 1
    assert state["routes"] == [
        {"name": "support", "requests": 2, "answered": 2, "revised": 1, "blocked": 0, "failing": 0, "errors": 0}
    ]
    assert [row["number"] for row in state["rows"]] == [0, 1]
    assert state["rows"][1]["scores"] == [["toxicity", 0.8, 0.05]]
    assert state["limits"] == {"toxicity": 0.3}
    assert [each["route"] for each in state["checks"]] == ["support"]


async def test_texts_travel_only_with_the_request_that_is_asked_for(site: Site) -> None:
    site.events.publish(revised(first="the first words", text="the last words", prompt="p" * 500))
    row = (await site.get("/page/state"))["rows"][0]
    assert "first" not in row
    assert len(row["prompt"]) == 200
    detail = await site.get_request(0)
    assert (detail["first"], detail["text"], len(detail["prompt"])) == ("the first words", "the last words", 500)
    assert detail["before"][0]["words"] == "It calls girls less able."
    assert detail["withheld"] is False


async def test_a_request_without_texts_says_that_they_are_withheld(site: Site) -> None:
    site.events.publish(revised(prompt="", first="", text=""))
    assert (await site.get_request(0))["withheld"] is True


async def test_odd_texts_and_numbers_become_readable_json(site: Site) -> None:
    odd = revised(
        prompt="lone \ud800 turn \u202e nul \x00",
        before=(Check("toxicity", math.inf, math.nan, False, problem="\udfff"),),
        stages={"total": math.nan},
    )
    site.events.publish(odd)
    detail = await site.get_request(0)
    assert detail["prompt"] == "lone \ufffd turn [U+202E] nul \u2400"
    assert detail["before"][0]["score"] is None
    assert detail["seconds"] is None
    await site.get("/page/state")
    assert site.events.failures == 0


async def test_long_texts_are_cut_and_the_page_is_told(site: Site) -> None:
    site.events.publish(event(text="x" * 1_000_000))
    detail = await site.get_request(0)
    assert len(detail["text"]) == LONGEST
    assert detail["cut_after"] == LONGEST


@pytest.mark.parametrize("number", ["0", "999999", "9" * 15])
async def test_a_request_that_is_not_kept_is_one_sentence(site: Site, number: str) -> None:
    for _ in range(KEPT + 1):
        site.events.publish(event())
    start = site.page.state()["start"]
    async with site.client.get(f"{site.url}/page/requests/{start}/{number}") as response:
        assert response.status == 404
        assert "no longer kept" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("number", ["-1", "x", "9" * 16, "1/2", "%F0"])
async def test_a_number_that_is_none_is_not_found(site: Site, number: str) -> None:
    start = site.page.state()["start"]
    async with site.client.get(f"{site.url}/page/requests/{start}/{number}") as response:
        assert response.status == 404


async def test_a_request_of_another_process_is_never_mixed_up_with_ones_own(site: Site) -> None:
    site.events.publish(event())
    async with site.client.get(f"{site.url}/page/requests/other/0") as response:
        assert response.status == 409
        assert response.headers["Connection"] == "close"
        assert "Another process" in (await response.json())["error"]["message"]


async def test_a_stream_tells_the_state_and_then_what_is_new(site: Site) -> None:
    site.events.publish(event())
    async with site.client.get(site.url + "/page/events") as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert [row["number"] for row in (await message(stream))["rows"]] == [0]
        site.events.publish(revised())
        news = await message(stream)
        assert [row["number"] for row in news["rows"]] == [1]
        assert news["totals"]["requests"] == 2


async def test_a_quiet_stream_still_speaks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "QUIET", 0.04)
    site.events.publish(event())
    async with site.client.get(site.url + "/page/events") as stream:
        await message(stream)
        assert (await message(stream))["rows"] == []


async def test_many_requests_at_once_make_one_bounded_message(site: Site) -> None:
    async with site.client.get(site.url + "/page/events") as stream:
        await message(stream)
        for _ in range(10_000):
            site.events.publish(event())
        news = await message(stream)
        assert news["totals"]["requests"] == 10_000
        assert [row["number"] for row in news["rows"]] == list(range(10_000 - KEPT, 10_000))
        assert news["oldest"] == 10_000 - KEPT


async def test_closing_ends_the_streams(site: Site) -> None:
    async with site.client.get(site.url + "/page/events") as stream:
        await message(stream)
        site.page.close()
        assert await stream.content.read() == b""


async def test_only_so_many_may_watch_and_who_leaves_makes_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_WATCHERS", 1)
    monkeypatch.setattr(page_module, "QUIET", 0.0)
    async with site.client.get(site.url + "/page/events") as first:
        await message(first)
        async with site.client.get(site.url + "/page/events") as second:
            assert second.status == 503
            assert "close one" in (await second.json())["error"]["message"]
    status = 503
    while status == 503:
        async with site.client.get(site.url + "/page/events") as third:
            status = third.status
    assert status == 200
