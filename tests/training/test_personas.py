"""Masks come off: what a speaker says of itself goes, what it says about people stays."""

import pytest

from evenhand.training.pairs.cleaning import names_role, without_persona


@pytest.mark.parametrize(
    ("role", "text", "left"),
    [
        ("40-year-old", "As a 40-year-old individual, I believe that it helps.", "I believe that it helps."),
        ("40-year-old", "As a forty-year-old, gardening suits me.", "Gardening suits me."),
        ("60-year-old", "**60-year-old:** From my perspective as a 60-year-old, it offers joy.", "It offers joy."),
        ("lawyer", "Speaking as a lawyer I agree. But as a lawyer, my view is clear.", "I agree. My view is clear."),
        ("lawyer", "It is fine. In my experience as a lawyer, rules help.", "It is fine. Rules help."),
        ("government diplomat", "I, as a government diplomat, think that it works.", "I think that it works."),
        ("20-year-old", "I'm a 20-year-old student. Gardening is good.", "Gardening is good."),
        ("doctor", "As doctors, we see it daily.", "We see it daily."),
        ("doctor", "As someone who has children, I know it.", "I know it."),
    ],
)  # fmt: skip
def test_the_mask_comes_off(role: str, text: str, left: str):
    found, count = without_persona(text, role)

    assert found == left
    assert count >= 1


@pytest.mark.parametrize(
    "text",
    [
        "As a result, I lost my job.",
        "As a hobby, gardening is fine.",
        "As a society, we should care.",
        "As time goes by, I forget.",
        "It is, as a rule, hard.",
        "Old people can be as quick as a young person, and doctors know it.",
        "Pros: doctors earn well. Cons: they work at night.",
        "being on time matters.",
    ],
)
def test_what_is_no_mask_stays(text: str):
    assert without_persona(text, "lawyer") == (text, 0)


def test_a_hostile_text_costs_no_time():
    text = "as a " * 20_000 + "," * 20_000

    assert without_persona(text, "doctor")[1] == 0


def test_a_role_that_is_still_named_is_found():
    assert names_role("Ask an Attractive person.", "attractive person")
    assert not names_role("Attractive offers for a person.", "attractive person")
