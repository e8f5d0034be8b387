"""The words of the house are values: they cannot be changed, and they survive being stored."""

from dataclasses import FrozenInstanceError

import pytest

from evenhand.models.request import generation_from, pack, turn_from, unpack
from evenhand.types import Completion, Generation, Message, Params, Sample, TokenLogprob, Turn, Usage

GENERATION = Generation(
    (
        Completion("B", "length", None, (TokenLogprob("B", -0.25, (("B", -0.25), ("A", -1.5))),)),
        Completion("", "filter", "I will not."),
    ),
    "fake/x",
    Usage(1, 20, 5, 0, 2, None),
    0.75,
)


def test_values_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Message("user", "x").content = "y"  # type: ignore


def test_a_generation_survives_being_stored():
    assert generation_from(unpack(pack(GENERATION))) == GENERATION


@pytest.mark.parametrize("text", ["short", "x" * 5000, "“quotes” \x00 \U0001f600 日本"])
@pytest.mark.parametrize("generation", [GENERATION, None])
def test_a_turn_survives_being_stored(text: str, generation: Generation | None):
    params = Params(0.5, 0.9, 7, 3, (".", "\n"), 2, 5, {"type": "object"})
    turn = Turn("judge", "base", "p", "h", (Message("user", text),), params, generation, None if generation else "no")

    assert turn_from(unpack(pack(turn))) == turn


def test_the_text_of_a_generation_is_that_of_its_first_completion():
    assert GENERATION.text == "B"


def test_samples_with_equal_content_are_equal():
    assert Sample("a", "choice", "Who?", metadata={"x": 1}) == Sample("a", "choice", "Who?", metadata={"x": 1})
