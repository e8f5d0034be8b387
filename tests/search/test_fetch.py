"""Pages of strangers: what is read, and all that is refused with one sentence, from a real local server."""

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address, ip_address
from typing import Any, ClassVar, cast

import pytest
from yarl import URL

from evenhand.core.errors import SearchError
from evenhand.search.web import fetch as address_module
from evenhand.search.web.fetch import FetchLimits, SafeFetcher, is_public, page_url, read_body
from support.pages_server import ARTICLE, PagesServer

Fetchers = Callable[..., SafeFetcher]


@pytest.fixture
async def server() -> AsyncIterator[PagesServer]:
    started = await PagesServer().start()
    yield started
    await started.stop()


@pytest.fixture
async def fetcher_for(server: PagesServer) -> AsyncIterator[Fetchers]:
    """`fetcher_for(…)` may visit the server, whatever its address, unless told otherwise."""
    made: list[SafeFetcher] = []

    def make(**options: Any) -> SafeFetcher:
        made.append(SafeFetcher(**{"allow": frozenset({server.host}), **options}))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


def answering(*answers: list[str]) -> Callable[[str, int], Awaitable[list[str]]]:
    """A resolver that gives the answers in turn."""
    left = list(answers)

    async def resolve(host: str, port: int) -> list[str]:
        return left.pop(0)

    return resolve


async def refusal(work: Awaitable[object]) -> str:
    """The sentence with which something is refused."""
    with pytest.raises(SearchError) as caught:
        await work
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


async def test_a_page_is_read(server: PagesServer, fetcher_for: Fetchers) -> None:
    page = await fetcher_for().fetch(f"{server.url}/article")

    assert page.content == ARTICLE
    assert not page.plain


async def test_plain_text_is_told_from_html(server: PagesServer, fetcher_for: Fetchers) -> None:
    assert (await fetcher_for().fetch(f"{server.url}/plain")).plain


async def test_a_packed_page_is_unpacked(server: PagesServer, fetcher_for: Fetchers) -> None:
    assert (await fetcher_for().fetch(f"{server.url}/packed")).content == ARTICLE


async def test_the_charset_of_the_reply_counts(server: PagesServer, fetcher_for: Fetchers) -> None:
    assert (await fetcher_for().fetch(f"{server.url}/latin")).content == "<p>Größe</p>"


async def test_a_redirect_is_followed(server: PagesServer, fetcher_for: Fetchers) -> None:
    page = await fetcher_for().fetch(f"{server.url}/moved")

    assert page.url == f"{server.url}/article"


async def test_nothing_about_the_user_goes_out(
    server: PagesServer, fetcher_for: Fetchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # would fail if it were used
    fetcher = fetcher_for()
    await fetcher.fetch(f"{server.url}/cookie")
    await fetcher.fetch(f"{server.url}/moved")

    for request in server.requests:
        assert not {"Cookie", "Referer", "Authorization"} & set(request.headers)
        assert request.headers["User-Agent"].startswith("evenhand/")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/file",
        "javascript:alert(1)",
        "data:text/html,hello",
        "gopher://example.org/",
        "//example.org/page",
        "example.org",
        "",
        "http://",
        "http:///page",
        "http://[::1",
        "http://example.org:99999/",
        "http://example.org:0/",
        "http://example.org:25/",
        "http://exam ple.org/",
        "http://user:password@example.org/",
        "http://user@example.org/",
        "http://example.org/" + "a" * 3_000,
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1:8080/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.64.0.1/",
        "http://0.0.0.0/",
        "http://0/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fec0::1]/",
        "http://[fc00::1]/",
        "http://[ff02::1]/",
    ],
)
async def test_what_is_no_public_page_is_not_visited(url: str, fetcher_for: Fetchers) -> None:
    resolver = answering()  # asking it anything would fail
    sentence = await refusal(fetcher_for(resolve=resolver).fetch(url))

    assert "password" not in sentence.replace("user name or password", "")


@pytest.mark.parametrize("text", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"])
def test_public_addresses_are_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("url", ["http://example.org/", "https://example.org:8443/a?b=c#d", "http://93.184.216.34/"])
def test_public_pages_may_be_visited(url: str) -> None:
    assert str(page_url(url)) == url


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::1"], ["::ffff:192.168.0.1"], ["169.254.169.254"], ["fe80::1%1"]],
)
async def test_a_public_name_with_a_private_address_is_not_visited(
    answer: list[str], server: PagesServer, fetcher_for: Fetchers
) -> None:
    fetcher = fetcher_for(resolve=answering(answer))

    assert await refusal(fetcher.fetch(f"http://example.org:{server.port}/article")) == (
        "example.org is not on the public internet, so it is not fetched."
    )
    assert server.requests == []


async def test_the_connection_goes_to_the_address_that_was_checked(
    server: PagesServer, fetcher_for: Fetchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the name is resolved once per connection, and never again after the check."""
    monkeypatch.setattr(address_module, "is_public", lambda address: address == IPv4Address("127.0.0.1"))
    asked: list[str] = []
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    fetcher = fetcher_for(resolve=resolve)
    page = await fetcher.fetch(f"http://rebinding.test:{server.port}/article")

    assert page.content == ARTICLE  # robots.txt and page came over one connection
    assert asked == ["rebinding.test"]
    await fetcher._session.close()  # pyright: ignore  # so that the name has to be resolved again
    fetcher._session = None  # pyright: ignore
    assert "not on the public internet" in await refusal(fetcher.fetch(f"http://rebinding.test:{server.port}/other"))
    assert server.paths == ["/robots.txt", "/article"]


async def test_an_unknown_host_is_told(fetcher_for: Fetchers) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    assert await refusal(fetcher_for(resolve=nowhere).fetch("http://nowhere.test/")) == (
        "nowhere.test could not be read (unknown host name)."
    )


@pytest.mark.parametrize(
    "where",
    ["http://127.0.0.1:8080/", "http://10.0.0.1/", "file:///etc/passwd", "http://[::1]:8080/", "http://[", "//@/"],
)
async def test_a_redirect_to_what_is_not_public_is_not_followed(
    where: str, server: PagesServer, fetcher_for: Fetchers
) -> None:
    await refusal(fetcher_for().fetch(f"{server.url}/to?where={where}"))

    assert server.paths == ["/robots.txt", "/to"]


async def test_a_redirect_by_name_is_checked_too(server: PagesServer, fetcher_for: Fetchers) -> None:
    fetcher = fetcher_for(resolve=answering(["127.0.0.1"]))

    sentence = await refusal(fetcher.fetch(f"{server.url}/to?where=http://inside.test:{server.port}/article"))

    assert sentence.startswith("inside.test is not on the public internet")

    assert server.paths == ["/robots.txt", "/to"]


async def test_redirects_in_a_circle_come_to_an_end(server: PagesServer, fetcher_for: Fetchers) -> None:
    assert "redirects more than 5 times" in await refusal(fetcher_for().fetch(f"{server.url}/loop"))
    assert server.paths.count("/loop") == 6


async def test_a_page_that_never_ends_is_given_up(server: PagesServer, fetcher_for: Fetchers) -> None:
    fetcher = fetcher_for(limits=FetchLimits(size=10**12))

    assert "in time" in await refusal(fetcher.fetch(f"{server.url}/endless"))
    await server.hung_up.wait()


@pytest.mark.parametrize("path", ["huge", "bomb"])
async def test_a_page_that_is_too_large_is_given_up(path: str, server: PagesServer, fetcher_for: Fetchers) -> None:
    fetcher = fetcher_for(limits=FetchLimits(size=200_000))

    assert "larger than 200,000 bytes" in await refusal(fetcher.fetch(f"{server.url}/{path}"))


async def test_a_page_that_just_fits_is_read(server: PagesServer, fetcher_for: Fetchers) -> None:
    assert len((await fetcher_for(limits=FetchLimits(size=300_000)).fetch(f"{server.url}/huge")).content) == 300_000


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("picture", "sent image/png, not a text page"),
        ("typeless", "sent a reply without a known type"),
        ("missing", "answered with HTTP 404"),
        ("damaged", "damaged compression"),
        ("brotli", "compression that was not requested"),
    ],
)
async def test_what_is_not_a_page_is_refused(
    path: str, reason: str, server: PagesServer, fetcher_for: Fetchers
) -> None:
    assert reason in await refusal(fetcher_for().fetch(f"{server.url}/{path}"))


async def test_only_as_much_is_unpacked_as_is_wanted() -> None:
    class Bomb:
        """A reply of a few kilobytes that is 50 megabytes unpacked."""

        headers: ClassVar = {"Content-Encoding": "gzip"}
        body = gzip.compress(b"a" * 50_000_000)

        @property
        def content(self) -> "Bomb":
            return self

        async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
            yield self.body

    tracemalloc.start()
    body, complete = await read_body(cast(Any, Bomb()), 200_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(body), complete) == (200_000, False)
    assert peak < 5_000_000


async def test_what_comes_behind_the_end_of_a_packed_page_is_left(server: PagesServer, fetcher_for: Fetchers) -> None:
    assert (await fetcher_for().fetch(f"{server.url}/trailing")).content == ARTICLE


async def test_a_host_is_asked_for_two_pages_at_once_at_most(
    server: PagesServer, fetcher_for: Fetchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[URL] = []
    most = 0
    get = SafeFetcher._get  # pyright: ignore

    async def counting(self: SafeFetcher, url: URL, *rest: Any) -> Any:
        nonlocal most
        under_way.append(url)
        most = max(most, len(under_way))
        try:
            return await get(self, url, *rest)
        finally:
            under_way.remove(url)

    monkeypatch.setattr(SafeFetcher, "_get", counting)
    fetcher = fetcher_for()
    await asyncio.gather(*(fetcher.fetch(f"{server.url}/article?{number}") for number in range(10)))

    assert most == 2
    assert server.paths.count("/robots.txt") == 1
