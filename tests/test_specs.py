"""Specs: names with an argument or options, and how values are read."""

from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.specs import key_values, read_spec, roles_and_specs, scalar, spec_parts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        ("2E3", 2000.0),
        ("true", True),
        ("", None),
        ("a text", "a text"),
        ("[a, b]", ["a", "b"]),
        ("nan", "nan"),
        ("[broken", "[broken"),
        ("wikipedia:de", "wikipedia:de"),
    ],
)
def test_values_are_read_as_yaml_reads_them_and_exponents_are_numbers(text: str, value: Any):
    assert scalar(text) == value


def test_a_spec_has_a_name_and_options():
    assert read_spec("stardtox") == ("stardtox", {})
    assert read_spec("stardtox:") == ("stardtox", {})
    assert read_spec("mabrf: iterations = 2,search=corpus:a/b") == ("mabrf", {"iterations": 2, "search": "corpus:a/b"})


@pytest.mark.parametrize("spec", ["stardtox:iterations", "stardtox:a=1,b", "stardtox:=1"])
def test_what_is_no_list_of_options_is_refused(spec: str):
    with pytest.raises(UsageError, match="stardtox: takes KEY=VALUE, not"):
        read_spec(spec)


def test_an_argument_is_the_value_of_the_option_that_takes_it():
    assert read_spec("judge:openai/llama3:8b", "model") == ("judge", {"model": "openai/llama3:8b"})
    assert read_spec("judge:model=openai/x", "model") == ("judge", {"model": "openai/x"})
    assert read_spec("judge", "model") == ("judge", {})


def test_the_parts_of_a_spec_are_as_written():
    assert spec_parts("corpus:a,b=c:d") == ("corpus", "a,b=c:d")


def test_flags_take_pairs():
    assert key_values(["a=1", "b = x=y"], "--set") == {"a": 1, "b": "x=y"}
    with pytest.raises(UsageError, match="--set takes KEY=VALUE, not 'a'"):
        key_values(["a"], "--set")


def test_models_may_have_roles():
    assert roles_and_specs(["openai/x", "judge=local/y"]) == [("base", "openai/x"), ("judge", "local/y")]
