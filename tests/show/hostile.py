"""A study in which every text tries to break out of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from evenhand.studies.results import WORDS

LITERAL = "</script><img src=x onerror=alert(1)>"
"""Must be readable on the page exactly like this."""
ATTACK = LITERAL + "<!-- ]]> \"><svg onload=alert(2)> ' &lt; ${1} {{7*7}} \ud800 \u2028 \u202e \x00\x1b[31m"
LONG = "A" * 100_000
_MEANINGFUL = {"all", "graded", "refused", "unscored", "failed", "higher", "lower", "zero", *WORDS}


def poisoned(value: Any) -> Any:
    """The value with the attack appended to every text in it; equal texts stay equal, so references hold."""
    if isinstance(value, str):
        return value if value in _MEANINGFUL else value + ATTACK
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: poisoned(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, Mapping):
        return {poisoned(key): poisoned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(poisoned(item) for item in value)
    return value
