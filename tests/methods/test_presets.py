"""Presets of methods: what `paper` stands for does not move when a default does."""

from typing import Any

import pytest

from evenhand.methods.base import METHODS

WITH_PAPER = [
    "blind_panel",
    "debate",
    "fair_panel",
    "judge",
    "mabrf",
    "mabrf_first",
    "panel",
    "rlaif",
    "stardtox",
]
PAPER: dict[str, dict[str, Any]] = {
    "stardtox": {
        "iterations": 2,
        "toxicity": 0.1,
        "quality": 80,
        "support": 80,
        "settled": 50,
        "candidates": 1,
        "memory": True,
        "scores": True,
        "keep": "last",
        "evidence": "rating",
        "calibration": "none",
    },
    "mabrf": {
        "iterations": 5,
        "accept": 1.5,
        "temperature": 0.2,
        "max_tokens": 256,
        "search": "",
        "grounded": 1,
        "keep": "last",
        "terminator": "always",
    },
    "debate": {"rounds": 5, "temperature": 0.7, "max_tokens": 160, "scoring": "numbers"},
    "panel": {"judges": 4, "rounds": 2, "order": "round_robin", "consensus": "mean", "temperature": 0.0},
}


def test_the_methods_of_papers_have_the_preset():
    assert [name for name in METHODS.names() if METHODS.get(name).options.presets] == WITH_PAPER


@pytest.mark.parametrize("name", WITH_PAPER)
def test_the_preset_pins_every_option(name: str):
    method = METHODS.get(name)

    assert method.options.presets["paper"].keys() == method.options.model_fields.keys()
    assert method.with_options({"preset": "paper"}).model_fields_set == method.options.model_fields.keys()


@pytest.mark.parametrize("name", PAPER)
def test_the_preset_has_the_values_of_the_published_runs(name: str):
    values = METHODS.get(name).with_options({"preset": "paper"}).model_dump()

    assert {key: values[key] for key in PAPER[name]} == PAPER[name]


def test_without_a_preset_it_is_evenhand():
    method = METHODS.get("stardtox")

    assert method.with_options({}) == method.with_options({"preset": "evenhand"})


def test_given_options_win_over_the_preset():
    options = METHODS.get("stardtox").with_options({"preset": "paper", "iterations": 1})

    assert (options.model_dump()["iterations"], options.model_dump()["candidates"]) == (1, 1)


def test_every_option_has_a_help_text():
    silent = [
        f"{name}.{option.name}"
        for name in METHODS.names()
        for option in METHODS.get(name).options.table()
        if not option.help
    ]

    assert silent == []
