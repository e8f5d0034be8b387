"""The visible text of pages, good and hostile."""

import pytest

from evenhand.search.web.pages import html_text


def test_only_what_a_reader_sees_of_a_page_is_text():
    page = (
        "<!DOCTYPE html><html><head><title>A\n title &amp; more</title><STYLE>p {}</STYLE></head><body><nav>Home</nav>"
        "<p>One &amp; <b>two</b></p><ul><li>three<li>four</ul><!-- five > <p> --><script>if (a < b) {}</Script >"
        '<a title="a > b">six</a><br/>seven<svg><title>no</title></svg> 1 < 2 &lt;p&gt;<footer>end'
    )

    title, text = html_text(page)

    assert title == "A title & more"
    assert text.split() == ["One", "&", "two", "three", "four", "six", "seven", "1", "<", "2", "<p>"]


def test_words_of_neighbouring_blocks_stay_apart():
    assert html_text("<td>one</td><td>two</td>")[1].split() == ["one", "two"]
    assert html_text("t<b>w</b>o")[1] == "two"


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<!--",
        "<a ",
        "<a x='",
        '<a x=">',
        "<script>",
        "<title>",
        "</",
        "<![CDATA[",
        "&#",
        "<?",
        "<a",
        "<div>",
        "&a",
    ],
)
def test_a_hostile_page_takes_no_longer_than_a_good_one(piece: str):
    # A parser that looks at any part twice would need an hour for this, and the test would be ended.
    _, text = html_text(f"Seen. {piece * 150_000}")

    assert text.startswith("Seen.")


def test_a_number_that_is_no_character_is_marked():
    assert html_text(f"a&#{'9' * 5_000};b&#x{'f' * 5_000};c&#xD800;d") == ("", "a\ufffdb\ufffdc\ufffdd")
