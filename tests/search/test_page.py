"""The text of a page: what is kept of it, what is not, and pages that would choke a parser."""

import asyncio
import unicodedata
from collections.abc import AsyncIterator
from typing import Any

import pytest

from evenhand.core.errors import MissingExtraError, SearchError
from evenhand.search.web import pages as reader_module
from evenhand.search.web.fetch import Page
from evenhand.search.web.pages import LONGEST_TEXT, PageReader, page_text, tidy
from support.pages_server import ARTICLE, HIDDEN, INJECTED, SLOW

URL = "http://example.org/page"


@pytest.fixture
async def reader() -> AsyncIterator[PageReader]:
    opened = PageReader(limit_s=600)
    yield opened
    await opened.aclose()


def page(content: str, *, plain: bool = False) -> Page:
    return Page(URL, content, plain)


def test_the_article_is_kept_and_what_is_around_it_is_not() -> None:
    title, text = page_text(ARTICLE, URL)

    assert title == "Older people and computers"
    assert "depends on practice" in text
    assert "var x" not in text and "Imprint" not in text and "<p>" not in text


def test_plain_text_is_only_tidied() -> None:
    assert page_text("a <b>  c\n\n\n d\r\ne", URL, plain=True) == ("", "a <b> c\nd\ne")


def test_characters_that_nobody_sees_are_taken_out() -> None:
    _, text = page_text(HIDDEN, URL)

    assert text.startswith("The txet of this page holds characters")
    assert not [letter for letter in text if unicodedata.category(letter)[0] == "C" and letter != "\n"]


@pytest.mark.parametrize(
    "how", ["hidden", "style='DISPLAY : none'", "style='visibility:hidden'", "style='font-size:0px'"]
)
def test_what_a_page_does_not_show_is_not_read(how: str) -> None:
    assert page_text(
        f"<p style='font-size:0.9em'>Some words.</p><div {how}><p>Secret.</p></div><p>More words.</p>", URL
    )[1].split() == [*("Some", "words.", "More", "words.")]


def test_an_instruction_stays_text_and_hidden_parts_vanish() -> None:
    _, text = page_text(INJECTED, URL)

    assert "Ignore all previous instructions" in text  # it is for the prompt to fence it
    assert "SYSTEM" not in text


@pytest.mark.parametrize(
    "text", ["\u2066a\u2069\u200d", "a\u3164\ufe0f\x00\x1b", "\udcffa\u034f", "\ta \u00a0\n\n", "a\u2028", "\ufeffa"]
)
def test_tidying_leaves_what_can_be_seen(text: str) -> None:
    assert tidy(text) == "a"
    assert tidy(tidy(text)) == "a"


def test_a_long_text_ends_with_a_sentence() -> None:
    text = tidy("One sentence of some words. " * 1_000)

    assert LONGEST_TEXT - 30 < len(text) <= LONGEST_TEXT
    assert text.endswith("words.")


def test_a_long_text_without_sentences_ends_with_a_word_or_anywhere() -> None:
    assert tidy("word " * 10, 13) == "word word"
    assert tidy("a" * 20, 13) == "a" * 13


@pytest.mark.parametrize("html", ["", "<html></html>", "\x00", "<script>1</script>"])
def test_a_page_without_text_is_told(html: str) -> None:
    with pytest.raises(SearchError, match="no text"):
        page_text(html, URL)


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 50_000 + "Some words.",
        "<b>" * 50_000 + "Some words.",
        "<p class='" + "a" * 500_000 + "'>Some words.</p>",
        "<table><tr><td>" * 5_000 + "Some words.",
        "<p>Some words.</p><!-- " + "<" * 10_000,
        "<?xml version='1.0' encoding='utf-16'?><html><body><p>Some words.</p></body></html>",
        '<!DOCTYPE x [<!ENTITY e "Some words."><!ENTITY f "&e;&e;">]><p>Some words. &f;</p>',
    ],
)
def test_odd_pages_are_read_all_the_same(html: str) -> None:
    assert "Some words." in page_text(html, URL)[1]


async def test_pages_are_read_in_another_process(reader: PageReader) -> None:
    pages = [page(ARTICLE), page("first\nsecond", plain=True), page(INJECTED)]

    (title, _), plain, (_, injected) = await asyncio.gather(*map(reader.read, pages))

    assert title == "Older people and computers"
    assert plain == ("", "first\nsecond")
    assert "printers" in injected


async def test_a_page_without_text_does_not_end_the_process(reader: PageReader) -> None:
    with pytest.raises(SearchError, match="no text"):
        await reader.read(page("<html></html>"))

    assert (await reader.read(page("words", plain=True)))[1] == "words"


async def test_a_page_that_takes_minutes_is_given_up_and_the_next_one_is_read(reader: PageReader) -> None:
    await reader.read(page("words", plain=True))  # the process stands, so that only the page can be slow
    reader._limit_s = 1.5  # pyright: ignore
    with pytest.raises(SearchError, match="too long"):
        await reader.read(page(SLOW))
    reader._limit_s = 600  # pyright: ignore

    assert (await reader.read(page("words", plain=True)))[1] == "words"


async def test_a_process_that_dies_is_replaced(reader: PageReader) -> None:
    await reader.read(page("words", plain=True))
    process = reader._process  # pyright: ignore
    assert process is not None
    process.kill()
    await process.wait()

    with pytest.raises(SearchError, match="cannot be read"):
        await reader.read(page("words", plain=True))
    assert (await reader.read(page("words", plain=True)))[1] == "words"


async def test_a_caller_that_goes_away_leaves_no_reply_for_the_next(
    reader: PageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()
    real_start = reader_module._start  # pyright: ignore

    async def start() -> Any:
        started.set()
        return await real_start()

    monkeypatch.setattr(reader_module, "_start", start)
    first = asyncio.create_task(reader.read(page("first", plain=True)))
    await started.wait()
    first.cancel()

    assert (await reader.read(page("second", plain=True)))[1] == "second"


async def test_keys_stay_out_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    given: dict[str, str] = {}

    async def start(*_command: str, env: dict[str, str], **_options: object) -> None:
        given.update(env)
        raise OSError

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    with pytest.raises(SearchError):
        await PageReader().read(page("words"))

    assert "PYTHONPATH" in given and "sk-secret" not in given.values()


def test_the_missing_package_is_named_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtraError, match="For reading web pages"):
        PageReader()
