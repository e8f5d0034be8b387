"""Specs: `NAME`, `NAME:ARGUMENT` or `NAME:KEY=VALUE,…`, the short form in which things are named and configured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from evenhand.errors import UsageError

_PAIR = re.compile(r"\s*([\w-]+)\s*=(.*)", re.DOTALL)
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def spec_parts(spec: str) -> tuple[str, str]:
    """The name, and what stands after the first colon."""
    name, _, rest = spec.partition(":")
    return name, rest


def read_spec(spec: str, argument: str | None = None) -> tuple[str, dict[str, Any]]:
    """The name and the options of a spec; what is no KEY=VALUE list is the value of the option `argument`."""
    name, rest = spec_parts(spec)
    parts = [part for part in rest.split(",") if part]
    if argument is not None and not all(map(_PAIR.fullmatch, parts)):
        return name, {argument: rest}
    return name, key_values(parts, f"{name}:")


def key_values(texts: Iterable[str], before: str) -> dict[str, Any]:
    """KEY=VALUE pairs; `before` is what stands before them, for the error message."""
    pairs: dict[str, Any] = {}
    for text in texts:
        pair = _PAIR.fullmatch(text)
        if pair is None:
            raise UsageError(f"{before} takes KEY=VALUE, not {text!r}.")
        pairs[pair[1]] = scalar(pair[2])
    return pairs


def scalar(text: str) -> Any:
    """A value as YAML reads it, so 3 is a number and true a truth; 1e-5 is a number too."""
    if _EXPONENT.fullmatch(text.strip()):
        return float(text)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def roles_and_specs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """(role, spec) of every [ROLE=]SPEC; a model without a role is the base model."""
    named = [re.fullmatch(r"(?:([a-z_][a-z_0-9]*)=)?(.+)", text) for text in texts]
    return [(match.group(1) or "base", match.group(2)) for match in named if match]
