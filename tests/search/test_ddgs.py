"""Web search through ddgs, with the package's client replaced: nothing leaves this machine."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from ddgs.exceptions import DDGSException, RatelimitException

from evenhand.core.errors import MissingExtraError, SearchError, UnknownNameError, UsageError
from evenhand.search.base import load_provider
from evenhand.search.web.ddgs import TRIES, DdgsSearch, Pace

ROW = {"title": "A page", "href": "https://example.org/a", "body": "What it says."}

Answer = Callable[[str, str], list[dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[str]]:
    """`asked(answer)` lets `answer(engine, query)` speak for the engines; gives the list of engines that were asked."""

    def use(answer: Answer) -> list[str]:
        engines: list[str] = []

        class Client:
            def __init__(self, **_options: Any) -> None: ...

            def text(self, query: str, *, backend: str, max_results: int) -> list[dict[str, Any]]:
                engines.append(backend)
                return answer(backend, query)

        monkeypatch.setattr("ddgs.DDGS", Client)
        return engines

    return use


class Time:
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def pace(self, gap: float = 1.0) -> Pace:
        return Pace(gap, self.sleep, lambda: self.now)


async def test_hits_come_from_one_engine_which_is_named(asked):
    asked(lambda *_: [ROW])

    found = await DdgsSearch("brave", pace=Time().pace()).search("older drivers", 5)

    assert (found.query, found.provider) == ("older drivers", "ddgs:brave")
    assert [(hit.title, hit.url, hit.snippet, hit.text) for hit in found.hits] == [
        ("A page", "https://example.org/a", "What it says.", "")
    ]


async def test_only_web_addresses_are_kept_and_no_more_than_asked_for(asked):
    bad = [{**ROW, "href": href} for href in ("javascript:alert(1)", "file:///etc/passwd", "ftp://x.org/", "")]
    asked(lambda *_: [*bad, ROW, {**ROW, "href": "HTTP://example.org/b"}, ROW])

    found = await DdgsSearch(None, pace=Time().pace()).search("q", 2)

    assert [hit.url for hit in found.hits] == ["https://example.org/a", "HTTP://example.org/b"]


async def test_each_query_starts_with_the_next_engine(asked):
    engines = asked(lambda *_: [ROW])
    provider = DdgsSearch("brave+mojeek", pace=Time().pace())

    for _ in range(3):
        await provider.search("q", 1)

    assert engines == ["brave", "mojeek", "brave"]


async def test_requests_are_a_second_apart(asked):
    asked(lambda *_: [ROW])
    time = Time()
    provider = DdgsSearch("brave", pace=time.pace(1.0))

    for _ in range(3):
        await provider.search("q", 1)

    assert time.waits == [1.0, 1.0]


@pytest.mark.parametrize("error", [RatelimitException("202 Ratelimit"), ValueError("a page in a new form")])
async def test_after_a_failure_the_next_engine_is_asked_later(asked, error: Exception):
    def answer(engine: str, _query: str) -> list[dict[str, Any]]:
        if engine == "brave":
            raise error
        return [ROW]

    engines = asked(answer)
    time = Time()

    found = await DdgsSearch("brave+mojeek", pace=time.pace()).search("q", 1)

    assert engines == ["brave", "mojeek"]
    assert found.provider == "ddgs:mojeek"
    assert time.waits[0] >= 1.0


async def test_when_all_refuse_it_gives_up_with_longer_waits_and_a_reason(asked):
    def refuse(*_: str) -> list[dict[str, Any]]:
        raise RatelimitException("202 Ratelimit")

    engines = asked(refuse)
    time = Time()

    with pytest.raises(SearchError, match=r"they may be blocking requests for now \(brave: 202 Ratelimit\)"):
        await DdgsSearch("brave", pace=time.pace(0)).search("q", 1)

    assert len(engines) == TRIES
    assert [low <= wait <= 2 * low for low, wait in zip((1, 2, 4), time.waits, strict=True)] == [True] * 3


async def test_nothing_from_any_engine_is_a_failure_since_a_refusal_looks_the_same(asked):
    def nothing(*_: str) -> list[dict[str, Any]]:
        raise DDGSException("No results found.")

    asked(nothing)

    with pytest.raises(SearchError, match=r"brave: No results found\.; mojeek: No results found\."):
        await DdgsSearch("brave+mojeek", pace=Time().pace()).search("q", 1)


async def test_a_search_that_hangs_is_given_up(asked):
    release = threading.Event()

    def hang(*_: str) -> list[dict[str, Any]]:
        release.wait()
        return []

    asked(hang)

    try:
        with pytest.raises(SearchError, match=r"more than 0\.05 s"):
            await DdgsSearch("brave", pace=Time().pace(), limit_s=0.05).search("q", 1)
    finally:
        release.set()


def test_the_engines_are_checked_before_any_search():
    with pytest.raises(UnknownNameError, match="did you mean mojeek"):
        load_provider("ddgs:brave+mojek")

    assert load_provider("ddgs:brave+mojeek").fingerprint() == {
        "search": "ddgs:brave+mojeek",
        "engines": ["brave", "mojeek"],
    }
    assert len(DdgsSearch().engines) >= 3


def test_without_the_package_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evenhand.search.web.ddgs.find_spec", lambda _name: None)

    with pytest.raises(UsageError, match=r"pip install .*\[search\]'"):
        load_provider("ddgs")
    with pytest.raises(MissingExtraError):
        DdgsSearch()
