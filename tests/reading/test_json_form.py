"""JSON answers against schemas that strangers wrote: what is said of them, and that none of them does harm."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.reading.json_form import json_fault

NULL = {"type": "null"}


def fault(schema: Any, text: str) -> str:
    return json_fault(text, {"type": "json_schema", "json_schema": {"schema": schema}})


def doubling(levels: int) -> dict[str, Any]:
    """A short schema with two to the power of `levels` ways through it."""
    parts: dict[str, Any] = {f"p{level}": {"anyOf": [{"$ref": f"#/$defs/p{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/p0", "$defs": {**parts, f"p{levels}": NULL}}


def test_the_place_of_a_fault_is_named():
    schema = {"properties": {"people": {"items": {"required": ["name"]}}}}

    assert fault(schema, '{"people": [{"name": "A"}, {}]}') == "Its people[1] lacks the field name."


def test_a_field_that_was_not_asked_for_is_named():
    schema = {"properties": {"a": {}}, "additionalProperties": False}

    assert fault(schema, '{"a": 1, "b": 1}') == "It has a field that was not asked for: b."


@pytest.mark.parametrize(
    ("schema", "text"),
    [({"not": {"type": "array"}}, "[]"), ({"oneOf": [{}, {}]}, "1"), ({"contains": NULL}, "[1]")],
)
def test_rules_without_a_sentence_of_their_own_hold_too(schema: Any, text: str):
    assert fault(schema, text) == "It does not fit the schema."


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5},
        {"type": "nonsense"},
        {"properties": None},
        {"required": "name"},
        {"items": [NULL]},
        {"patternProperties": {"(": NULL}},
        {"$ref": "#named"},
        {"$ref": "https://example.invalid/schema.json"},
        {"$dynamicRef": "#"},
        {"$defs": {"a": {"$id": "b", "type": "null"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_that_cannot_be_used_asks_for_nothing(schema: Any):
    assert fault(schema, "{}") == ""


def test_a_reference_opens_no_file(tmp_path: Path):
    file = tmp_path / "null.json"
    file.write_text('{"type": "null"}')

    assert fault({"$ref": file.as_uri()}, "1") == ""


def test_a_pattern_is_not_run():
    assert fault({"pattern": "^(a|a)*(?=b)$"}, f'"{"a" * 200}"') == ""


def test_many_ways_through_a_schema_are_not_all_tried():
    assert fault(doubling(3), "1") == "It is not of the type null."
    assert fault(doubling(10), "1") == "It does not fit the schema."
    assert fault(doubling(80), "1") == ""


def test_alternatives_that_lead_back_to_themselves_end():
    node = {"items": {"$ref": "#/$defs/node"}, "type": "array"}
    schema = {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [node, node, NULL]}}}

    assert fault(schema, "[[null], []]") == ""
    assert fault(schema, '[["x"]]') == "Its [0][0] is not of the type array."
    assert fault(schema, "[" * 60 + '"x"' + "]" * 60) == "It does not fit the schema."


@pytest.mark.parametrize("levels", [300, 1_000])
def test_deep_schemas_and_answers_ask_for_nothing(levels: int):
    schema: Any = NULL
    for _ in range(levels):
        schema = {"items": schema}

    assert fault(schema, "[" * levels + "1" + "]" * levels) == ""
