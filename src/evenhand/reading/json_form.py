"""Whether a text is the JSON that a request asks for: valid, and of the form that its schema names.

`jsonschema_rs` validates; here its errors become sentences, and the schema, which a stranger wrote, is kept from doing
harm: nothing is fetched, and what could take exponential time is not tried. A schema that is not one asks for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import orjson

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_LARGEST = 100_000
"""Schemas with more parts than this, references expanded, are not used."""
_LARGEST_EXPLAINED = 20_000
"""The limit for explaining errors, which is a thousand times slower than detecting them."""
_UNCHECKED = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "pattern"),
)
"""Bounds, which many endpoints do not enforce, and patterns, which are untrusted regular expressions."""


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
    if not isinstance(schema, dict):
        return ""
    try:
        return _schema_fault(value, cast(dict[str, Any], schema))
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def _schema_fault(value: Any, schema: dict[str, Any]) -> str:
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    known: dict[str, tuple[int, int]] = {}
    size, _ = _weight(schema, schema, known)
    if size > _LARGEST:
        return ""
    validator = Draft202012Validator(
        schema,
        offline=True,
        validate_formats=False,
        pattern_options=RegexOptions(size_limit=1 << 16, dfa_size_limit=1 << 16),
        keywords=dict.fromkeys(_UNCHECKED, _Anything),
    )
    if validator.is_valid(value):
        return ""
    # An explanation covers every alternative, so that it grows by this factor with each level of the value.
    loops = max((1, *(loops for _, loops in known.values())))
    if size * loops ** _depth(value) <= _LARGEST_EXPLAINED:
        try:
            validator.validate(value)
        except ValidationError as error:
            return _sentence(error)
    return "It does not fit the schema."


class _Anything:
    """A keyword that is not checked."""

    def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None:
        del parent_schema, value, schema_path

    def validate(self, instance: Any) -> None:
        del instance


def _sentence(error: ValidationError) -> str:
    from jsonschema_rs import ValidationErrorKind as Kind

    match error.kind:
        case Kind.AnyOf(context=[[first, *_], *_]) | Kind.OneOfNotValid(context=[[first, *_], *_]):
            return _sentence(first)
        case Kind.Type(types=types):
            fault = f"is not of the type {' or '.join(sorted(types, key='null'.__eq__))}"
        case Kind.Enum():
            fault = "is none of the allowed values"
        case Kind.Constant():
            fault = "is not the expected value"
        case Kind.Required(property=name):
            fault = f"lacks the field {name}"
        case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
            fault = f"has a field that was not asked for: {names[0]}"
        case _:
            fault = "does not fit the schema"
    place = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.instance_path)
    what = f"Its {place.lstrip('.')}" if place else "It"
    return f"{what} {fault}."


def _weight(part: Any, root: dict[str, Any], known: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """How many parts a schema has with its references written out, and how many references lead back to themselves."""
    weights = [_weight(each, root, known) for each in _inner(part)]
    rules = cast(dict[str, Any], part) if isinstance(part, dict) else {}
    if "$dynamicRef" in rules or (rules is not root and isinstance(rules.get("$id"), str)):
        raise ValueError("Only references within one document are followed.")
    if isinstance(reference := rules.get("$ref"), str):
        if reference not in known:
            known[reference] = 1, 1
            known[reference] = _weight(_referred(reference, root), root, known)
        weights.append(known[reference])
    return 1 + sum(size for size, _ in weights), sum(loops for _, loops in weights)


def _referred(reference: str, root: dict[str, Any]) -> Any:
    """What `#/$defs/NAME` points at."""
    document, *path = unquote(reference).split("/")
    if document != "#":
        raise ValueError("Only references within one document are followed.")
    place: Any = root
    for part in path:
        name = part.replace("~1", "/").replace("~0", "~")
        place = cast(list[Any], place)[int(name)] if isinstance(place, list) else place[name]
    return place


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, _inner(value)), default=-1)


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(dict[str, Any], value).values())
    return cast(list[Any], value) if isinstance(value, list) else []
