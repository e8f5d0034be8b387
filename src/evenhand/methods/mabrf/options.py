"""MABRF's options, checked before any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.errors import PlanError
from evenhand.methods.base import check_numbers
from evenhand.search.base import check_spec
from evenhand.types import SampleKind

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "iterations": (0, 100),
    "accept": (1, 10),
    "results": (1, 20),
    "pages": (0, 20),
    "temperature": (0, 2),
    "max_tokens": (1, 100_000),
}
_FRACTIONS = ("accept", "temperature")


def check_options(kind: SampleKind, options: Mapping[str, Any]) -> None:
    """Refuses options that make no sense, and a search that cannot be."""
    if kind == "chat" and (given := [name for name in ("search", "look", "domain") if options.get(name)]):
        raise PlanError(f"MABRF's option {given[0]} is for questions about a passage, not for conversations.")
    check_numbers("MABRF's", options, _BOUNDS, _FRACTIONS)
    for name in ("look", "domain"):
        if not isinstance(options[name], bool):
            raise PlanError(f"MABRF's option {name} is true or false, not {options[name]!r}.")
    if options.get("search"):
        check_spec(str(options["search"]))
