"""robots.txt: how it is read, and that it is obeyed."""

import sys
import tracemalloc

import pytest

from evenhand.core.errors import MissingExtraError, SearchError
from evenhand.search.web.fetch import SafeFetcher, read_robots
from support.pages_server import PagesServer

SITE = """\ufeff# a comment
User-agent: Other
Disallow: /

User-agent: *
Disallow: /private   # and a comment
Disallow: /*?session=
Disallow: /*.pdf$
Allow: /private/open
Disallow:
Sitemap: http://example.org/map.xml
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/private", False),
        ("/private/open", True),
        ("/%70rivate", False),
        ("/page?session=1", False),
        ("/page?x=1", True),
        ("/a.pdf", False),
        ("/a.pdf.html", True),
    ],
)
def test_the_longest_rule_decides(path: str, allowed: bool) -> None:
    assert read_robots(SITE).allow(path) is allowed


@pytest.mark.parametrize("name", ["evenhand", "Evenhand", "EvenHand/1.0"])
def test_rules_under_our_name_replace_those_for_all(name: str) -> None:
    robots = read_robots(f"User-agent: *\nDisallow: /\n\nUser-agent: x\nUser-agent: {name}\nDisallow: /a\n")

    assert robots.allow("/b")
    assert not robots.allow("/a")


@pytest.mark.parametrize("name", ["even", "handy", "not-evenhand"])
def test_names_like_ours_are_not_ours(name: str) -> None:
    assert read_robots(f"User-agent: {name}\nDisallow: /\n").allow("/a")


def test_our_name_without_rules_allows_everything() -> None:
    assert read_robots("User-agent: *\nDisallow: /\n\nUser-agent: evenhand\nDisallow:\n").allow("/a")


def test_of_two_rules_of_equal_length_the_milder_one_counts() -> None:
    assert read_robots("User-agent: *\nDisallow: /a\nAllow: /a\n").allow("/a")


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "Disallow: /", "\x00\x01", ":::\n:"])
def test_a_text_without_rules_allows_everything(text: str) -> None:
    assert read_robots(text).allow("/a")


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [("/a*b*c$", "/aXbYc", True), ("/a*b*c$", "/aXbYcZ", False), ("/a*aa$", "/aa", False), ("/*a*", "/bab", True)],
)
def test_wildcards(pattern: str, path: str, fits: bool) -> None:
    assert read_robots(f"User-agent: *\nDisallow: {pattern}").allow(path) is not fits


def test_a_path_that_begins_with_two_slashes_is_a_path() -> None:
    assert not read_robots("User-agent: *\nDisallow: //private").allow("//private/page")


@pytest.mark.parametrize("written", ["User-agent: {}", "user agent {}", "USERAGENT:{}"])
def test_rules_are_not_kept_once_for_every_name(written: str) -> None:
    names = "\n".join(written.format(f"robot{number}") for number in range(500))
    text = f"{names}\n" + "Disallow: /a\n" * 500
    tracemalloc.start()
    try:
        read_robots(text)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protego", None)

    with pytest.raises(MissingExtraError, match=r"\[search\]"):
        read_robots("")


async def test_a_page_that_is_shut_out_is_not_asked_for() -> None:
    server = await PagesServer(robots="User-agent: *\nDisallow: /art").start()
    fetcher = SafeFetcher(allow=frozenset({server.host}))
    try:
        with pytest.raises(SearchError, match=r"robots\.txt of 127\.0\.0\.1 does not allow"):
            await fetcher.fetch(f"{server.url}/article")
        await fetcher.fetch(f"{server.url}/other")
        assert server.paths == ["/robots.txt", "/other"]
    finally:
        await fetcher.aclose()
        await server.stop()


@pytest.mark.parametrize(("status", "readable"), [(404, True), (403, True), (429, False), (500, False), (503, False)])
async def test_no_rules_allow_and_a_failing_site_forbids(status: int, readable: bool) -> None:
    server = await PagesServer(robots=status).start()
    fetcher = SafeFetcher(allow=frozenset({server.host}))
    try:
        if readable:
            await fetcher.fetch(f"{server.url}/article")
        else:
            with pytest.raises(SearchError, match=f"cannot be read now .HTTP {status}"):
                await fetcher.fetch(f"{server.url}/article")
            server.robots = ""
            await fetcher.fetch(f"{server.url}/article")  # the failure was not remembered
    finally:
        await fetcher.aclose()
        await server.stop()
