"""Typed options: what is refused and how, presets, and the table that people read."""

from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field, model_validator

from evenhand.core.errors import PlanError, UnknownNameError
from evenhand.core.options import Names, Options, Text


class Brewing(Options):
    presets: ClassVar = {"strong": {"minutes": 8, "sort": "black"}}

    minutes: int = Field(default=4, ge=1, le=10, description="How long it steeps.")
    cups: int = Field(default=2, ge=1)
    warmth: float = Field(default=0.9, gt=0, lt=1)
    sort: Literal["black", "green"] = "green"
    milk: bool = False
    guests: Names = ()
    pot: Text | None = None
    limit: int | None = Field(default=None, ge=1)


def brewed(**given: Any) -> Brewing:
    return Brewing.parse("method tea", given)


def test_without_options_the_defaults_hold():
    assert brewed() == Brewing()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"minutes": 11}, "minutes of the method tea must be a whole number from 1 to 10, not 11"),
        ({"minutes": 2.5}, "minutes of the method tea must be a whole number from 1 to 10, not 2.5"),
        ({"minutes": True}, "minutes of the method tea must be a whole number from 1 to 10, not True"),
        ({"minutes": "4"}, "minutes of the method tea must be a whole number from 1 to 10, not '4'"),
        ({"minutes": None}, "minutes of the method tea must be a whole number from 1 to 10, not None"),
        ({"cups": 0}, "cups of the method tea must be a whole number of at least 1, not 0"),
        ({"warmth": 1}, "warmth of the method tea must be a number above 0 and below 1, not 1"),
        ({"warmth": float("nan")}, "warmth of the method tea must be a number above 0 and below 1, not nan"),
        ({"sort": "red"}, "sort of the method tea must be black or green, not 'red'"),
        ({"milk": 1}, "milk of the method tea must be true or false, not 1"),
        ({"pot": ["a"]}, r"pot of the method tea must be a text, not \['a'\]"),
        ({"limit": 0}, "limit of the method tea must be a whole number of at least 1, not 0"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_in_one_sentence(given: dict[str, Any], words: str):
    with pytest.raises(PlanError, match=f"^The option {words}\\.$"):
        brewed(**given)


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="no option of the method tea named 'minute'; did you mean minutes"):
        brewed(minute=3)


def test_whole_numbers_do_where_fractions_are_meant():
    class Share(Options):
        part: float = Field(default=0.5, ge=0, le=1)

    assert Share.parse("method x", {"part": 1}).part == 1.0


@pytest.mark.parametrize("guests", ["Ann,Bo", "Ann+Bo", "Ann, Bo", ["Ann", "Bo"], ("Ann ", "Bo")])
def test_names_come_as_a_list_or_as_one_text(guests: Any):
    assert brewed(guests=guests).guests == ("Ann", "Bo")


def test_paths_and_numbers_do_where_a_text_is_meant():
    assert brewed(pot=Path("a") / "b").pot == "a/b"
    assert brewed(pot=2024).pot == "2024"


class TestPresets:
    def test_a_preset_stands_for_its_values(self):
        assert brewed(preset="strong") == Brewing(minutes=8, sort="black")

    def test_what_is_given_wins_over_the_preset(self):
        assert brewed(preset="strong", minutes=3) == Brewing(minutes=3, sort="black")

    def test_the_default_preset_is_that_of_the_fields(self):
        assert brewed(preset="evenhand", milk=True) == Brewing(milk=True)

    def test_an_unknown_preset_is_refused_by_name(self):
        with pytest.raises(UnknownNameError, match="no preset of the method tea named 'strng'; did you mean strong"):
            brewed(preset="strng")

    def test_options_without_presets_have_no_such_option(self):
        with pytest.raises(UnknownNameError, match="option of the method plain named 'preset'"):
            Options.parse("method plain", {"preset": "evenhand"})


def test_a_missing_option_is_asked_for_with_its_description():
    class Listed(Options):
        ids: Text = Field(description="the list (--set ids=FILE).")

    with pytest.raises(PlanError, match=r"^The benchmark x needs the option ids: the list \(--set ids=FILE\)\.$"):
        Listed.parse("benchmark x", {})


def test_rules_between_options_are_said_in_their_own_words():
    class Paired(Options):
        one: bool = False
        other: bool = False

        @model_validator(mode="after")
        def _not_both(self) -> "Paired":
            if self.one and self.other:
                raise PlanError("One or the other.")
            return self

    with pytest.raises(PlanError, match=r"^One or the other\.$"):
        Paired.parse("method x", {"one": True, "other": True})


def test_the_table_has_what_people_ask_for():
    minutes, *_ = Brewing.table()

    assert (minutes.name, minutes.kind, minutes.default) == ("minutes", "a whole number from 1 to 10", 4)
    assert minutes.help == "How long it steeps."
    assert minutes.presets == {"strong": 8}
    assert [option.kind for option in Brewing.table() if option.name in ("guests", "pot")] == [
        "a list of names",
        "a text",
    ]


def test_options_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        brewed().minutes = 3  # pyright: ignore[reportAttributeAccessIssue]
