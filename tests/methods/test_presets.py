"""Presets of methods: what `paper` and `released` stand for does not move when a default does."""

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
    "search",
    "stardtox",
]
VALUES: dict[tuple[str, str], dict[str, Any]] = {
    ("stardtox", "paper"): {
        "iterations": 2,
        "toxicity": 0.12,
        "quality": 80,
        "support": 80,
        "candidates": 1,
        "memory": True,
        "scores": True,
        "keep": "last",
        "evidence": "support",
        "hint": False,
        "judge_first": True,
        "reading": "written",
        "calibration": "none",
    },
    ("mabrf", "paper"): {
        "iterations": 5,
        "accept": 1.5,
        "grounded": 1,
        "judge": "lines",
        "reading": "written",
        "judge_temperature": 0.0,
        "keep": "last",
        "terminator": "always",
        "hint": False,
        "facts": "primary",
        "queries": 5,
    },
    ("mabrf", "released"): {
        "judge": "answer",
        "reading": "written",
        "judge_temperature": 0.2,
        "keep": "no_worse",
        "hint": False,
        "facts": "primary",
        "queries": 3,
        "results": 5,
        "pages": 0,
        "temperature": 0.2,
    },
    ("search", "released"): {"passage": True, "queries": 3, "results": 5, "pages": 0},
    ("debate", "paper"): {"rounds": 5, "temperature": 0.7, "scoring": "numbers", "reading": "written"},
    ("panel", "paper"): {
        "judges": 4,
        "rounds": 2,
        "order": "round_robin",
        "consensus": "mean",
        "temperature": 0.0,
        "ties": False,
        "situation": False,
        "reading": "written",
    },
}
PRESETS = [(name, preset) for name in WITH_PAPER for preset in METHODS.get(name).options.presets]


def test_the_methods_of_papers_have_the_preset():
    assert [name for name in METHODS.names() if METHODS.get(name).options.presets] == WITH_PAPER


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_the_preset_pins_every_option(name: str, preset: str):
    method = METHODS.get(name)

    assert method.with_options({"preset": preset}).model_fields_set == method.options.model_fields.keys()


@pytest.mark.parametrize(("name", "preset"), VALUES)
def test_the_preset_has_the_values_of_paper_or_code(name: str, preset: str):
    values = METHODS.get(name).with_options({"preset": preset}).model_dump()

    assert {key: values[key] for key in VALUES[name, preset]} == VALUES[name, preset]


@pytest.mark.parametrize("name", WITH_PAPER)
def test_what_a_declaration_says_of_ours_is_the_default(name: str):
    options = METHODS.get(name).options
    declared = {option: values for each in options.presets.elements for option, values in each.options.items()}

    for option, values in declared.items():
        if option in options.model_fields:
            assert values["evenhand"] == options.model_fields[option].default, option
        assert set(values.values() if option in options.model_fields else [0, 1]) != {values["evenhand"]}, option


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
