"""Which JSON schemas are kept to, and which are refused before they cost anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twoshift.errors import InvalidInput
from twoshift.runtime.llm.schemas import check_schema


def an_object(count: int, required: int = 0, **more: Any) -> dict[str, Any]:
    names = [f"p{k}" for k in range(count)]
    return {"type": "object", "properties": {name: {} for name in names}, "required": names[:required], **more}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


TREE = {
    "$defs": {"tree": {"type": "object", "properties": {"of": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}},
    "$ref": "#/$defs/tree",
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": text(maxLength=12, title="A")}, "required": ["a"]},
        {"properties": {"a": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}], "default": None}}},
        {"enum": ["a", "b"], "type": "string"},
        {"const": 1, "type": "integer"},
        {"type": ["string", "null"], "minLength": 2},
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        {"type": "object", "additionalProperties": {"type": "number"}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        TREE,
        text(format="date"),
        *[text(pattern=each) for each in (r"^[A-Z]{2}-\d+$", r"a\(?b", r'[^"\\]+', r"(?:ab|c)*?", r"[^\s]", r"\$")],
        an_object(1000, required=1000),
        an_object(100),
        nested(60),
    ],
)
def test_what_can_be_kept_to_is_taken(schema: dict[str, Any]) -> None:
    check_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (text(minLength=-5), "minLength"),
        (text(maxLength=10**9), "maxLength"),
        ({"$ref": "#"}, "infinitely recursive"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            "infinitely recursive",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "infinitely recursive"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "infinitely recursive"),
        ({"allOf": [{"$ref": "#"}]}, "allOf"),
        ({"allOf": [{"type": "string"}, {"enum": ["yes"]}]}, "allOf"),
        ({"not": {"type": "string"}}, "not"),
        ({"oneOf": [{"type": "string"}]}, "oneOf"),
        ({"type": "integer", "multipleOf": 7}, "multipleOf"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "patternProperties": {"^x": {}}}, "patternProperties"),
        ({"$ref": "http://example.com/foo.json"}, "$ref"),
        ({"$ref": "#/$defs/nope"}, "$ref"),
        ({"$ref": "#/title/nope", "title": {"nope": {}}}, "$ref"),
        ({"$ref": "#/$defs/a", "minLength": 3, "$defs": {"a": {"type": "string"}}}, "minLength"),
        ({"anyOf": [{"type": "string"}], "maxLength": 3}, "maxLength"),
        ({"minLength": 3}, "minLength"),
        ({"enum": ["a", 1], "type": "string"}, "enum"),
        ({"enum": []}, "enum"),
        ({"type": "foo"}, "foo"),
        ({"type": 17}, "17"),
        ({"type": "object", "required": ["z"]}, "required"),
        (text(pattern="a+", maxLength=3), "pattern"),
        (text(format="date", maxLength=3), "format"),
        (text(format="password"), "format"),
        *[
            (text(pattern=each), "pattern")
            for each in (r"[^\s\S]", '["]', "(?=a)b", "(?!a)b", "(?<!a)b", "(?i)b", "a$b", r"\bfoo", r"(a)\1", "([")
        ],
        *[(text(pattern=each), "pattern") for each in ('"', r"\n", r"\\", "x" * 501, "(" * 400 + ")" * 400 + "\x00")],
        (text(pattern="(.{0,50}x){0,50}"), "130,050 characters of patterns"),
        (text(pattern="([^x]{0,14}){0,15}"), "2,940 characters of patterns"),
        (an_object(1001, required=1001), "1,001 properties"),
        (an_object(101), "101 optional properties"),
        ({"$defs": {f"d{k}": {} for k in range(101)}}, "101 definitions"),
        ({"type": "array", "prefixItems": [text(maxLength=k) for k in range(33)]}, "33 different text lengths"),
        (
            {"type": "array", "prefixItems": [text(maxLength=200 + k) for k in range(4)]},
            "4 text lengths over 100",
        ),
        ({"anyOf": [an_object(1, additionalProperties=True)] * 4}, "4 text lengths over 100, or objects"),
        ({"anyOf": [{"type": "integer", "minimum": k} for k in range(101)]}, "101 ranges of numbers"),
        (nested(70), "64"),
        ({"enum": ["x" * 70_000]}, "65,536"),
    ],
)
def test_what_cannot_be_is_refused_by_name(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_schema(json.dumps(schema))
    assert refused.value.field == "json_schema"
    assert told in str(refused.value)


@pytest.mark.parametrize("given", ["", "{", "[]", "7", '{"properties": 3}', '{"type": "string", "minLength": true}'])
def test_what_is_no_schema_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        check_schema(given)
