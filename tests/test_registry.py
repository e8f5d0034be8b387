"""The registry: things by name, found when asked for, and third parties welcome."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.core.registry import Registry

MODULE = """
import builtins
from evenhand_test_things import THINGS
builtins.evenhand_loaded.append("{name}")
THINGS.register("{name}")("the {name}")
"""


@dataclass
class Point:
    """A third party's entry point."""

    name: str
    thing: Any
    value: str = "package:thing"

    def load(self) -> Any:
        if isinstance(self.thing, Exception):
            raise self.thing
        return self.thing


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A package with the modules `apple` and `pear`; the names of those that were imported."""
    package = tmp_path / "evenhand_test_things"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from evenhand.core.registry import Registry\nTHINGS = Registry('thing', 'evenhand_test_things')\n"
    )
    for name in ("apple", "pear"):
        (package / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []
    monkeypatch.setattr("builtins.evenhand_loaded", names, raising=False)
    yield names
    for module in [each for each in sys.modules if each.startswith("evenhand_test_things")]:
        del sys.modules[module]


@pytest.fixture
def things(loaded: list[str]) -> Registry[str]:
    import evenhand_test_things  # pyright: ignore

    return evenhand_test_things.THINGS


def third_party(monkeypatch: pytest.MonkeyPatch, *points: Point) -> None:
    def entry_points(*, group: str) -> list[Point]:
        return list(points) if group == "evenhand.things" else []

    monkeypatch.setattr("evenhand.core.registry.entry_points", entry_points)


def test_only_the_module_of_the_name_is_imported(things: Registry[str], loaded: list[str]):
    assert things.get("pear") == "the pear"
    assert loaded == ["pear"]


def test_all_names_are_known_when_asked_for(things: Registry[str]):
    assert things.names() == ["apple", "pear"]


def test_a_misspelt_name_is_answered_with_the_nearest(things: Registry[str]):
    with pytest.raises(UnknownNameError, match=r"There is no thing named 'appel'; did you mean apple\?"):
        things.get("appel")


@pytest.mark.parametrize("name", ["xyzzy", "", "a.b", "../..", "os"])
def test_an_unknown_name_is_answered_with_all(things: Registry[str], name: str):
    with pytest.raises(UnknownNameError, match="known: apple, pear"):
        things.get(name)


def test_a_name_is_given_once(things: Registry[str]):
    things.register("mine")("one")

    with pytest.raises(UsageError, match="'mine' is registered already"):
        things.register("mine")("two")

    assert things.get("mine") == "one"


def test_third_parties_add_things_by_entry_point(things: Registry[str], monkeypatch: pytest.MonkeyPatch):
    third_party(monkeypatch, Point("plum", "the plum"))

    assert things.get("plum") == "the plum"
    assert things.names() == ["apple", "pear", "plum"]


def test_a_third_party_does_not_replace_what_is_built_in(things: Registry[str], monkeypatch: pytest.MonkeyPatch):
    third_party(monkeypatch, Point("pear", "another pear"))
    things.names()

    assert things.get("pear") == "the pear"


def test_a_broken_third_party_harms_nobody_else(things: Registry[str], monkeypatch: pytest.MonkeyPatch):
    third_party(monkeypatch, Point("bad", ImportError("no torch")), Point("plum", "the plum"))

    with pytest.warns(UserWarning, match=r"The thing 'bad' \(package:thing\) cannot be loaded: no torch"):
        names = things.names()

    assert names == ["apple", "pear", "plum"]


def test_a_module_that_fails_to_import_is_not_forgotten(things: Registry[str], tmp_path: Path):
    broken = tmp_path / "evenhand_test_things" / "broken.py"
    broken.write_text("raise RuntimeError('broken')")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            things.names()
