"""The searcher: pages behind hits, what is remembered, and what happens when something fails."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evenhand.core.errors import SearchError, UnknownNameError
from evenhand.search.base import Hit, SearchProvider, SearchResult
from evenhand.search.searcher import Searcher, load_search
from evenhand.search.web.fetch import SafeFetcher
from evenhand.search.web.pages import PageReader
from support.pages_server import PagesServer

Searchers = Callable[..., Searcher]


class Told(SearchProvider):
    """Brings the hits that it was told, or raises the error."""

    name: ClassVar[str] = "told"

    def __init__(self, *hits: Hit, error: SearchError | None = None, gate: asyncio.Event | None = None) -> None:
        self.hits = hits
        self.error = error
        self.gate = gate
        self.queries: list[str] = []
        self.asked = asyncio.Event()
        self.closed = False

    async def search(self, query: str, limit: int) -> SearchResult:
        self.queries.append(query)
        self.asked.set()
        if self.gate:
            await self.gate.wait()
        if self.error:
            raise self.error
        return self.result(query, self.hits[:limit])

    async def aclose(self) -> None:
        self.closed = True


class Web(Told):
    """The same, whose hits are pages."""

    web: ClassVar[bool] = True


@pytest.fixture
async def searcher_for() -> AsyncIterator[Searchers]:
    made: list[Searcher] = []

    def make(*arguments: Any, **options: Any) -> Searcher:
        made.append(Searcher(*arguments, **{"reader": PageReader(limit_s=600), **options}))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


@pytest.fixture
async def server() -> AsyncIterator[PagesServer]:
    started = await PagesServer().start()
    yield started
    await started.stop()


def hit(number: int = 1, **fields: str) -> Hit:
    return Hit(**{"title": f"Title {number}", "url": f"http://example.org/{number}", "snippet": "A snippet.", **fields})


async def test_the_first_pages_are_read_and_the_others_keep_their_snippets(
    server: PagesServer, searcher_for: Searchers
) -> None:
    provider = Web(*(hit(url=f"{server.url}/{name}", title="") for name in ("article", "injected", "third")))
    searcher = searcher_for(provider, SafeFetcher(allow=frozenset({server.host})))

    found = await searcher.find("old people", limit=3, pages=2)

    assert ["practice" in found.hits[0].text, "printers" in found.hits[1].text] == [True, True]
    assert found.hits[0].title == "Older people and computers"
    assert found.hits[2] == hit(url=f"{server.url}/third", title="")
    assert searcher.caveats() == []


async def test_a_page_that_fails_keeps_its_snippet(server: PagesServer, searcher_for: Searchers) -> None:
    urls = ("/missing", "/picture", "/empty", "/article")
    provider = Web(*(hit(url=server.url + url) for url in urls), hit(url="file:///etc/passwd"))
    searcher = searcher_for(provider, SafeFetcher(allow=frozenset({server.host})))

    found = await searcher.find("query", pages=5)

    assert [bool(each.text) for each in found.hits] == [False, False, False, True, False]
    assert all(each.snippet == "A snippet." for each in found.hits)
    (caveat,) = searcher.caveats()
    assert caveat.startswith("4 of 5 web pages could not be read, only their snippets were used (the first: ")


async def test_by_default_pages_on_this_machine_are_not_visited(server: PagesServer, searcher_for: Searchers) -> None:
    searcher = searcher_for(Web(hit(url=f"{server.url}/article")))

    assert (await searcher.find("query")).hits[0].text == ""
    assert server.requests == []


async def test_texts_of_other_providers_are_tidied_too(searcher_for: Searchers) -> None:
    searcher = searcher_for(Told(hit(title="a\u202eb\nc", snippet="x\u200by", text="one\n\n\n two\x00")))

    (found,) = (await searcher.find("query")).hits

    assert (found.title, found.snippet, found.text) == ("ab c", "xy", "one\ntwo")


async def test_what_was_found_is_found_again_by_another_searcher(tmp_path: Path, searcher_for: Searchers) -> None:
    path = tmp_path / "folder" / "searches.sqlite"
    first, second = Told(hit()), Told(hit(2))

    found = await searcher_for(first, cache=path).find("  some\n query ")
    again = await searcher_for(second, cache=path).find("some query")

    assert again == found
    assert found.query == "some query" and found.time.endswith("Z")
    assert (first.queries, second.queries) == (["some query"], [])


async def test_another_question_is_another_search(tmp_path: Path, searcher_for: Searchers) -> None:
    provider = Told(hit(1), hit(2))
    searcher = searcher_for(provider, cache=tmp_path / "searches.sqlite")

    await searcher.find("query")
    await searcher.find("other query")
    assert len((await searcher.find("query", limit=1)).hits) == 1
    await searcher.find("query", pages=0)  # pages make no difference where none are read

    assert provider.queries == ["query", "other query", "query"]


async def test_another_source_is_another_search(tmp_path: Path, searcher_for: Searchers) -> None:
    class Other(Told):
        name: ClassVar[str] = "other"

    other = Other()
    await searcher_for(Told(hit()), cache=tmp_path / "searches.sqlite").find("query")

    assert (await searcher_for(other, cache=tmp_path / "searches.sqlite").find("query")).hits == ()


async def test_finding_nothing_is_remembered(tmp_path: Path, searcher_for: Searchers) -> None:
    provider = Told()
    searcher = searcher_for(provider, cache=tmp_path / "searches.sqlite")

    assert [(await searcher.find("query")).hits for _ in range(2)] == [(), ()]
    assert len(provider.queries) == 1


async def test_a_failure_is_not_remembered(tmp_path: Path, searcher_for: Searchers) -> None:
    provider = Told(hit(), error=SearchError("It is down."))
    searcher = searcher_for(provider, cache=tmp_path / "searches.sqlite")

    with pytest.raises(SearchError, match=r"It is down\."):
        await searcher.find("query")
    provider.error = None

    assert (await searcher.find("query")).hits == (hit(),)


@pytest.mark.parametrize("cached", [True, False])
async def test_equal_searches_at_the_same_time_are_made_once(
    cached: bool, tmp_path: Path, searcher_for: Searchers
) -> None:
    provider = Told(hit(), gate=asyncio.Event())
    searcher = searcher_for(provider, cache=tmp_path / "searches.sqlite" if cached else None)
    asking = [asyncio.create_task(searcher.find("query")) for _ in range(3)]
    await provider.asked.wait()
    asking[0].cancel()
    assert provider.gate
    provider.gate.set()

    assert (await asking[1]).hits == (await asking[2]).hits == (hit(),)
    assert provider.queries == ["query"]


async def test_a_long_query_is_cut_and_an_empty_one_refused(searcher_for: Searchers) -> None:
    provider = Told()
    searcher = searcher_for(provider)

    await searcher.find("word " * 200)
    with pytest.raises(SearchError, match="empty"):
        await searcher.find(" \n\u200b")

    assert [len(query) for query in provider.queries] == [399]


def broken_file(path: Path) -> None:
    path.write_bytes(b"this is not a database, " * 100)


def a_folder(path: Path) -> None:
    path.mkdir()


def another_table(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE searches (other TEXT)")
    database.close()


@pytest.mark.parametrize("spoil", [broken_file, a_folder, another_table])
async def test_a_cache_that_cannot_be_used_ends_nothing(
    spoil: Callable[[Path], None], tmp_path: Path, searcher_for: Searchers
) -> None:
    path = tmp_path / "searches.sqlite"
    spoil(path)
    searcher = searcher_for(Told(hit()), cache=path)

    assert [(await searcher.find("query")).hits for _ in range(2)] == [(hit(),), (hit(),)]
    (caveat,) = searcher.caveats()
    assert caveat.startswith(f"the search cache {path} cannot be used (")


async def test_a_damaged_entry_is_found_again(tmp_path: Path, searcher_for: Searchers) -> None:
    path = tmp_path / "searches.sqlite"
    await searcher_for(Told(hit()), cache=path).find("query")
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("UPDATE searches SET found = '[1'")
    database.close()
    provider = Told(hit(2))
    searcher = searcher_for(provider, cache=path)

    assert [(await searcher.find("query")).hits for _ in range(2)] == [(hit(2),), (hit(2),)]
    assert len(provider.queries) == 1
    assert searcher.caveats() == []


async def test_closing_ends_what_is_under_way() -> None:
    provider = Told(gate=asyncio.Event())
    searcher = Searcher(provider)
    asking = asyncio.create_task(searcher.find("query"))
    await provider.asked.wait()

    await searcher.aclose()

    assert provider.closed
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_search_is_loaded_by_its_spec(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Older people use computers.", "utf-8")
    searcher = load_search(f"corpus:{tmp_path}")

    assert searcher.spec == f"corpus:{tmp_path}"
    assert dict(searcher.fingerprint())
    await searcher.aclose()
    with pytest.raises(UnknownNameError):
        load_search("nothing")
