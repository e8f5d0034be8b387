"""Whether a text is the JSON that a request asks for: valid, and of the form that its schema names.

A small reader of JSON Schema: types, required and allowed fields, items, enums, alternatives and local references.
What it does not know it lets pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEEPEST = 64


def wants_json(response_format: Any) -> bool:
    """Whether a request's `response_format` asks for JSON."""
    return isinstance(response_format, Mapping) and cast(Mapping[str, Any], response_format).get("type") in (
        "json_object",
        "json_schema",
    )


def json_fault(text: str, response_format: Any) -> str:
    """What is wrong with the text as an answer in this form, in words; empty where nothing is."""
    if not wants_json(response_format):
        return ""
    try:
        value: Any = orjson.loads(text)
    except ValueError:
        return "It is not valid JSON."
    if response_format.get("type") == "json_object":
        return "" if isinstance(value, dict) else "It is not a JSON object."
    named: Any = response_format.get("json_schema")
    schema: Any = cast(Mapping[str, Any], named).get("schema") if isinstance(named, Mapping) else None
    return _fault(value, schema, _Schema(schema), "", 0) if isinstance(schema, Mapping) else ""


@dataclass(frozen=True, slots=True)
class _Schema:
    """A whole schema, and what was found so far: alternatives that refer to each other would else never end."""

    root: Any
    found: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])


def _fault(value: Any, rules: Any, schema: _Schema, place: str, depth: int) -> str:
    if not isinstance(rules, Mapping) or depth > _DEEPEST:
        return ""
    key = (id(rules), id(value))  # pyright: ignore[reportUnknownArgumentType]
    if key not in schema.found:
        schema.found[key] = ""  # what leads back here adds nothing
        schema.found[key] = _fault_by(value, cast(Mapping[str, Any], rules), schema, place, depth)
    return schema.found[key]


def _fault_by(value: Any, rules: Mapping[str, Any], schema: _Schema, place: str, depth: int) -> str:
    if isinstance(rules.get("$ref"), str):
        return _fault(value, _referred(rules["$ref"], schema.root), schema, place, depth + 1)
    if fault := _value_fault(value, rules, f"Its {place}" if place else "It"):
        return fault
    for name in ("anyOf", "oneOf"):
        options = cast(list[Any], rules[name]) if isinstance(rules.get(name), list) else []
        faults = [_fault(value, each, schema, place, depth + 1) for each in options]
        if faults and all(faults):
            return faults[0]
    return _inner_fault(value, rules, schema, place, depth)


def _value_fault(value: Any, rules: Mapping[str, Any], what: str) -> str:
    if "type" in rules and not _has_type(value, rules["type"]):
        return f"{what} is not of the type {_or(rules['type'])}."
    if "enum" in rules and value not in rules["enum"]:
        return f"{what} is none of the allowed values."
    if "const" in rules and value != rules["const"]:
        return f"{what} is not the expected value."
    return ""


def _inner_fault(value: Any, rules: Mapping[str, Any], schema: _Schema, place: str, depth: int) -> str:
    if isinstance(value, dict):
        return _object_fault(cast(dict[str, Any], value), rules, schema, place, depth)
    if isinstance(value, list):
        faults = (
            _fault(each, rules.get("items"), schema, f"{place}[{number}]", depth + 1)
            for number, each in enumerate(cast(list[Any], value))
        )
        return next(filter(None, faults), "")
    return ""


def _object_fault(value: Mapping[str, Any], rules: Mapping[str, Any], schema: _Schema, place: str, depth: int) -> str:
    properties: Mapping[str, Any] = rules.get("properties") or {}
    for name in rules.get("required") or ():
        if name not in value:
            return f"{f'Its {place}' if place else 'It'} lacks the field {name}."
    if rules.get("additionalProperties") is False and (extra := value.keys() - properties.keys()):
        return f"{f'Its {place}' if place else 'It'} has a field that was not asked for: {min(extra)}."
    for name, each in value.items():
        inner = f"{place}.{name}" if place else name
        if fault := _fault(each, properties.get(name), schema, inner, depth + 1):
            return fault
    return ""


def _has_type(value: Any, names: Any) -> bool:
    for name in cast(Sequence[Any], names) if isinstance(names, list) else (names,):
        types = _TYPES.get(name)
        if types is None or (isinstance(value, types) and (name == "boolean" or not isinstance(value, bool))):
            return True
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return True
    return False


def _or(names: Any) -> str:
    return " or ".join(map(str, cast(Sequence[Any], names))) if isinstance(names, list) else str(names)


def _referred(reference: str, root: Any) -> Any:
    """What `#/$defs/NAME` points at."""
    found = root
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        found = cast(Mapping[str, Any], found).get(part) if isinstance(found, Mapping) else None
    return found
