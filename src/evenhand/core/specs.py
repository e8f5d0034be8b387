"""Parses specs, the short form that names and configures a method, benchmark, scorer or model.

A spec is `NAME`, `NAME:ARGUMENT` or `NAME:KEY=VALUE,…`; a model's is `PROVIDER/NAME` or `PROVIDER/NAME?KEY=VALUE&…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import yaml

from evenhand.core.errors import UsageError

_PAIR = re.compile(r"\s*([\w-]+)\s*=(.*)", re.DOTALL)
_OPTIONS = re.compile(r"([^?]+)\?([\w-]+=.*)", re.DOTALL)
_IN_FILE = re.compile(r"([^:]*\.py:\w+)(?::|$)")
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def spec_parts(spec: str) -> tuple[str, str]:
    """The name, and what stands after the first colon; a name in a file is part of the name: `mine.py:NAME`."""
    if match := _IN_FILE.match(spec):
        return match[1], spec[match.end() :]
    name, _, rest = spec.partition(":")
    return name, rest


def read_spec(spec: str, argument: str | None = None, known: Iterable[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the name and options of a spec; anything but KEY=VALUE pairs is the value of the option `argument`.

    Options that are `known` may stand after it: `NAME:ARGUMENT,KEY=VALUE`.
    """
    name, rest = spec_parts(spec)
    pairs = [pair for pair in rest.split(",") if pair]
    if argument is not None and not all(map(_PAIR.fullmatch, pairs)):
        names, own = set(known), rest.split(",")
        last: list[str] = []
        while (pair := _PAIR.fullmatch(own[-1])) is not None and pair[1] in names:
            last.append(own.pop())
        return name, {argument: ",".join(own), **key_values(reversed(last), f"{name}:")}
    return name, key_values(pairs, f"{name}:")


def key_values(texts: Iterable[str], prefix: str) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; `prefix` is the text before them, for the error message."""
    pairs: dict[str, Any] = {}
    for text in texts:
        pair = _PAIR.fullmatch(text)
        if pair is None:
            raise UsageError(f"{prefix} takes KEY=VALUE, not {text!r}.")
        pairs[pair[1]] = scalar(pair[2])
    return pairs


def scalar(text: str) -> Any:
    """Parse a value as YAML does (`3` is a number, `true` a boolean); `1e-5` is a number, too."""
    if _EXPONENT.fullmatch(text.strip()):
        return float(text)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def roles_and_specs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Split every [ROLE=]SPEC into (role, spec); a model without a role is the base model."""
    named = [re.fullmatch(r"(?:([a-z_][a-z_0-9]*)=)?(.+)", text) for text in texts]
    return [(match.group(1) or "base", match.group(2)) for match in named if match]


def model_spec(text: str) -> tuple[str, dict[str, str]]:
    """Return a model's PROVIDER/NAME and the options after it, as in a URL; repeated values are joined by commas."""
    match = _OPTIONS.fullmatch(text)
    if match is None:
        return text, {}
    options: dict[str, str] = {}
    for pair in filter(None, match[2].split("&")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"The options of {match[1]} are KEY=VALUE&KEY=VALUE…; {name!r} has no value.")
        value = unquote(value)
        options[name] = f"{options[name]},{value}" if name in options else value
    return match[1], options
