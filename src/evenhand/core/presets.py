"""Presets as data: what a paper prints, what its authors' code does and what we do, element by element.

A file `presets.yaml` beside a module declares them once; options, commands, tables in the documentation and tests read
it:

    pinned: {iterations: 5}             # the same in all presets but ours, whatever our default becomes
    elements:
      - element: What is kept
        paper: the last reasoning       # in words; `released` and `evenhand` likewise
        evenhand: the best reasoning
        why: a rewrite can be worse
        options: {keep: {paper: last, evenhand: best}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DEFAULT_PRESET = "evenhand"
"""The preset that consists of the options' defaults."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a paper in each preset: in words, and as values of options."""

    name: str
    said: Mapping[str, str]
    """Preset → what it does, in words."""
    why: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Option → preset → value."""


class Presets(dict[str, dict[str, Any]]):
    """Preset → option → value, for every preset but ours, whose values are the options' defaults."""

    elements: Sequence[Element] = ()

    @classmethod
    def beside(cls, file: str, owner: str = "") -> Presets:
        """Read `presets.yaml` in the folder of a module; `owner` names the pinned values where several share it."""
        return _read(Path(file).with_name("presets.yaml"), owner)


@cache
def _read(path: Path, owner: str) -> Presets:
    raw: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    elements = [_element(each) for each in raw["elements"]]
    names = dict.fromkeys(preset for each in elements for preset in each.said if preset != DEFAULT_PRESET)
    pinned: dict[str, Any] = raw.get("pinned", {})
    shared = pinned.get(owner, {}) if owner else pinned
    made = Presets({name: dict(shared) for name in names})
    made.elements = elements
    for each in elements:
        for option, values in each.options.items():
            for name in names:
                # What the authors' code leaves as it is printed is printed.
                made[name][option] = values[name] if name in values else values[next(iter(names))]
    return made


def _element(raw: Mapping[str, Any]) -> Element:
    said = {name: str(text) for name, text in raw.items() if name not in ("element", "why", "options")}
    return Element(raw["element"], said, raw["why"], raw.get("options", {}))
