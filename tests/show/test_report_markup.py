"""Nothing that comes in as text goes out as markup."""

from __future__ import annotations

import json
import math

import pytest
from hostile import ATTACK, LITERAL

from evenhand.show.markup import Html, clean, embedded_json, escape, join, tag
from evenhand.show.page import prose


def test_children_and_attributes_are_escaped() -> None:
    made = tag("p", LITERAL, title='"><svg onload=x>')
    assert made == ('<p title="&quot;&gt;&lt;svg onload=x&gt;">&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;</p>')


def test_markup_inside_markup_is_kept() -> None:
    assert tag("p", tag("b", "<")) == "<p><b>&lt;</b></p>"


def test_plain_concatenation_loses_the_right_to_be_markup() -> None:
    assert join(Html("<b>") + "x") == "&lt;b&gt;x"


def test_attributes_may_be_left_out_or_bare() -> None:
    assert tag("input", hidden=True, id=None, disabled=False, class_="a", aria_label="b") == (
        '<input hidden class="a" aria-label="b">'
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00\x1b[31m", "a␀␛[31m"),
        ("\x7f", "␡"),
        ("\ud800x\udfff", "�x�"),
        ("\u202eevil", "[U+202E]evil"),
        ("line\r\nline\ttab", "line\nline\ttab"),
        ("émoji 👩‍🔬 עברית", "émoji 👩‍🔬 עברית"),
    ],
)
def test_what_cannot_be_seen_is_made_visible(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert escape(text).encode()


def test_embedded_json_cannot_end_its_script_element_and_still_says_the_same() -> None:
    text = embedded_json({"a": ATTACK, "line": "\u2028\u2029&"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": clean(ATTACK), "line": "\u2028\u2029&"}


def test_embedded_json_takes_whatever_metadata_holds() -> None:
    odd = {1: math.nan, "set": {3}, "tuple": (1, None, True), "object": Html, "\ud800": "\udc00"}
    assert json.loads(embedded_json(odd)) == {
        "1": "nan",
        "set": [3],
        "tuple": [1, None, True],
        "object": str(Html),
        "�": "�",
    }


def test_commands_in_sentences_are_set_as_code_and_a_lone_backtick_stays() -> None:
    said = tag("p", prose("Run `evenhand judges check <m>` first; a ` stays"))

    assert said == "<p>Run <code>evenhand judges check &lt;m&gt;</code> first; a ` stays</p>"
