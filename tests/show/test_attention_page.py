"""The heat map of attention: one self-contained page, and its numbers."""

import csv
import re
from pathlib import Path

import pytest

from evenhand.methods.framing import FramedAttention
from evenhand.models.hf.attention import Attention
from evenhand.show.attention import attention_page, passages_table, write_attention_csv

WORDS = ("<s>", "\n", "You", " wrote", " <b>this</b>.", "\n")
LAYERS = ((0.8, 0.0, 0.02, 0.08, 0.1, 0.0), (0.6, 0.0, 0.1, 0.1, 0.2, 0.0))


def framed(name: str = "own") -> FramedAttention:
    return FramedAttention(name, Attention(WORDS, LAYERS), {"Who wrote it": "You wrote", "Question": "not there"})


def test_the_mean_is_over_layers_and_a_part_gets_what_its_words_get():
    attention = Attention(WORDS, LAYERS)

    assert attention.mean == pytest.approx((0.7, 0, 0.06, 0.09, 0.15, 0))
    assert attention.on("You wrote") == pytest.approx(0.15)
    assert attention.on("wrote <b>") == pytest.approx(0.24)
    assert attention.on("not there") is None
    assert attention.on("") is None


def test_the_page_needs_nothing_else_and_escapes_what_it_shows():
    page = attention_page("Title <i>", "Lead", [framed(), framed("other")], layers=False).html()

    assert "<b>this" not in page and "&lt;b&gt;this" in page and "Title &lt;i&gt;" in page
    assert not re.search(r"(?:src|href)=\"https?:", page)
    assert 'id="own"' in page and 'id="other"' in page
    assert "Layer 1" not in page and "Layer 1" in attention_page("T", "L", [framed()], layers=True).html()


def test_the_first_word_does_not_take_all_the_colour():
    page = attention_page("T", "L", [framed()], layers=False).html()

    shades = dict(re.findall(r'<span class="heat-(\d+)" title="([\d.]+) %">', page)[::-1])
    assert re.search(r'heat-10" title="70\.00 %">&lt;s&gt;<', page)
    assert re.search(r'heat-10" title="15\.00 %">', page)
    assert re.search(r'heat-0" title="0\.00 %">↵</span><br>', page)
    assert len(shades) > 2


def test_the_numbers_as_csv(tmp_path: Path):
    write_attention_csv(tmp_path / "a.csv", [framed()], layers=True)

    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(WORDS)
    assert [row["layer"] for row in rows[:: len(WORDS)]] == ["mean", "1", "2"]
    assert rows[3] == {"framing": "own", "layer": "mean", "place": "4", "word": " wrote", "attention": "0.09"}


def test_a_part_that_is_not_found_is_a_dash():
    (row,) = passages_table("T", [framed()]).rows

    assert list(row) == ["own", "15.00", "–", "85.00"]
