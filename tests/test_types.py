"""The words of the house are values: they cannot be changed, and they survive being stored."""

from dataclasses import FrozenInstanceError

import pytest

from evenhand.core.types import Completion, Generation, Message, Params, Sample, Steering, TokenLogprob, Turn, Usage
from evenhand.models.request import generation_from, model_identity, pack, request_key, turn_from, unpack

GENERATION = Generation(
    (
        Completion("B", "length", None, (TokenLogprob("B", -0.25, (("B", -0.25), ("A", -1.5))),)),
        Completion("", "filter", "I will not."),
    ),
    "fake/x",
    Usage(1, 20, 5, 0, 2, None),
    0.75,
)
STEERING = Steering(((Message("system", "s"), Message("user", "a")), (Message("user", "b"),)), 50.0, 0.01)


def test_values_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Message("user", "x").content = "y"  # type: ignore


def test_a_generation_survives_being_stored():
    assert generation_from(unpack(pack(GENERATION))) == GENERATION


@pytest.mark.parametrize("text", ["short", "x" * 5000, "“quotes” \x00 \U0001f600 日本"])
@pytest.mark.parametrize("generation", [GENERATION, None])
def test_a_turn_survives_being_stored(text: str, generation: Generation | None):
    params = Params(0.5, 0.9, 7, 3, (".", "\n"), 2, 5, {"type": "object"}, STEERING if generation else None)
    turn = Turn("judge", "base", "p", "h", (Message("user", text),), params, generation, None if generation else "no")

    assert turn_from(unpack(pack(turn))) == turn


def test_a_turn_from_before_there_was_steering_can_be_read():
    turn = Turn("judge", "base", "p", "h", (Message("user", "x"),), Params(0.5), GENERATION)
    stored = unpack(pack(turn))
    del stored["params"]["steering"]

    assert turn_from(stored) == turn


def test_the_key_of_a_request_is_what_it_was_before_there_was_steering():
    key = request_key(model_identity({"spec": "fake/x"}), [Message("user", "Who?")], Params(0.5, seed=3))

    assert key.hex() == "7b2c2abd8b3bb07b893fa91ccb3fb496cd6afc630ef3c7b4c136b640d2ba55fa"
    steered = Params(0.5, seed=3, steering=STEERING)
    assert request_key(model_identity({"spec": "fake/x"}), [Message("user", "Who?")], steered) != key


def test_the_text_of_a_generation_is_that_of_its_first_completion():
    assert GENERATION.text == "B"


def test_samples_with_equal_content_are_equal():
    assert Sample("a", "choice", "Who?", metadata={"x": 1}) == Sample("a", "choice", "Who?", metadata={"x": 1})
