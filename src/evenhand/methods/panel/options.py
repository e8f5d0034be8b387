"""The panels' options, checked before any call: numbers and words that make sense, and the personas of the judges."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from evenhand.asking.panel import ORDERS, TOPOLOGIES
from evenhand.errors import DataError, PlanError
from evenhand.methods.base import check_numbers
from evenhand.types import SampleKind

MOST_JUDGES = 8
_BUILTIN = Path(__file__).with_name("personas.yaml")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "order": ORDERS,
    "topology": TOPOLOGIES,
    "consensus": ("mean", "median", "chair"),
}
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "judges": (1, MOST_JUDGES),
    "rounds": (0, 20),
    "temperature": (0, 2),
    "max_tokens": (0, 100_000),
}
_FRACTIONS = ("temperature",)


def check_options(kind: SampleKind, options: Mapping[str, Any]) -> None:
    """Refuses options that make no sense, and personas that are not there."""
    del kind
    check_numbers("The panel's", options, _BOUNDS, _FRACTIONS)
    for name, words in _WORDS.items():
        if name in options and options[name] not in words:
            raise PlanError(f"The panel's option {name} is {' or '.join(words)}, not {options[name]!r}.")
    if "personas" in options:
        personas_for(options)


def personas_for(options: Mapping[str, Any]) -> dict[str, str]:
    """The judges, by name, with what they look at: as many of the personas as there are judges."""
    path = Path(str(options["personas"])) if options["personas"] else _BUILTIN
    try:
        # Read again when it was changed: a notebook may run a panel twice.
        found = _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        hint = "the personas cannot be read; give a YAML file of names and descriptions."
        raise DataError(hint, file=path) from error
    judges = options["judges"]
    if len(found) < judges:
        raise PlanError(f"There are {len(found)} personas for {judges} judges; add some, or take fewer judges.")
    return dict(list(found.items())[:judges])


@cache
def _read(path: Path, _changed: int) -> Mapping[str, str]:
    read: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries: dict[Any, Any] = cast("dict[Any, Any]", read) if isinstance(read, dict) else {}
    personas = {str(name).strip(): " ".join(text.split()) for name, text in entries.items() if isinstance(text, str)}
    if not personas or len(personas) < len(entries) or not all(personas) or not all(personas.values()):
        raise DataError("personas are lines of a name and a description, as in `client: asks if it helps`.", file=path)
    return personas
