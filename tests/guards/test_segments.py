"""What is scored at once: the units of a text, whole or growing."""

import pytest

from evenhand.guards.segments import UNIT, pieces, units

TEXT = "Bread needs flour and water. The park opens at eight in the morning! " * 40


def test_a_growing_text_has_the_units_of_the_whole():
    seen: list[str] = []
    done = ""
    for piece in pieces(TEXT):
        seen += units(done + piece, since=len(done))
        done += piece

    assert seen == list(units(TEXT)) and len(seen) > 20


@pytest.mark.parametrize("text", [TEXT, "word " * 3_000, "x" * 5_000, "One sentence of some length."])
def test_units_hold_everything_and_have_a_bound(text: str):
    found = list(units(text))

    assert all(len(each) <= UNIT for each in found)
    assert all(piece in "".join(found) for piece in pieces(text))
    assert all(each in text for each in found)
