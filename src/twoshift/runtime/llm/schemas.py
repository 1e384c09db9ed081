"""JSON schemas that a grammar keeps to, and is made of in a second or two; anything else is refused by its keyword."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from twoshift.errors import InvalidInput
from twoshift.runtime.llm.patterns import pattern_size
from twoshift.runtime.llm.productive import endless

__all__ = ["check_schema"]

_MOST_BYTES, _DEEPEST = 64 << 10, 64
_MOST = {
    "properties": 1000,
    "optional properties": 100,
    "definitions": 100,
    "ranges of numbers": 100,
    "different text lengths": 32,
    "text lengths over 100, or objects with `properties` and `additionalProperties`": 3,  # half a second each
    "characters of patterns, repetitions included": 256,
}
_PROPERTIES, _OPTIONAL, _DEFINITIONS, _RANGES, _DIFFERENT, _DEAR, _PATTERNS = _MOST
_SHORT = 100  # characters
_LONGEST = 10_000  # text or list
_NOTES = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id",
    "$defs", "definitions",
})  # fmt: skip
_LENGTHS, _COUNTS = ("minLength", "maxLength"), ("minItems", "maxItems")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "string": (*_LENGTHS, "pattern", "format"),
    "integer": _NUMBERS,
    "number": _NUMBERS,
    "array": ("items", "prefixItems", *_COUNTS),
    "object": ("properties", "required", "additionalProperties"),
    "boolean": (),
    "null": (),
}
_FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
_ALONE = ("$ref", "anyOf", "enum", "const")  # a grammar follows one of them, and nothing that stands beside it
_PYTHON: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "array": list, "object": dict, "boolean": bool,
    "null": type(None),
}  # fmt: skip


def check_schema(text: str) -> None:
    """Raises InvalidInput with what to leave out."""
    if len(text) > _MOST_BYTES:
        raise _refused(f"{len(text):,} characters of JSON", f"at most {_MOST_BYTES:,}")
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refused(text, f"a JSON schema ({error})") from None
    _check_depth(schema, _DEEPEST)
    _Walk(schema).check()
    if (found := endless(schema)) is not None:
        raise _refused(found, "a schema that a finite answer can satisfy: this schema is infinitely recursive")


class _Walk:
    """Through every schema inside one, counting."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._counted = dict.fromkeys(_MOST, 0)
        self._lengths = set[tuple[Any, Any]]()

    def check(self) -> None:
        """Raises InvalidInput."""
        if not isinstance(self._root, dict):
            raise _refused(self._root, "an object")
        self._schema(self._root)

    def _count(self, what: str, by: int = 1) -> None:
        self._counted[what] += by
        if self._counted[what] > _MOST[what]:
            raise _refused(f"{self._counted[what]:,} {what}", f"at most {_MOST[what]:,} in a schema")

    def _schema(self, schema: Any) -> None:
        if schema is True:
            return
        if not isinstance(schema, dict):
            raise _refused(schema, "a schema that is a JSON object or true")
        for name in ("$defs", "definitions"):
            inside = _object(schema, name)
            self._count(_DEFINITIONS, len(inside))
            self._each(inside.values())
        alone = [name for name in _ALONE if name in schema]
        if alone:
            self._alone(schema, alone[0])
        else:
            self._typed(schema, _types(schema))

    def _each(self, schemas: Iterable[Any]) -> None:
        for each in schemas:
            self._schema(each)

    def _alone(self, schema: dict[str, Any], name: str) -> None:
        value, is_value = schema[name], name in ("enum", "const")
        for beside in schema.keys() - _NOTES - {name} - ({"type"} if is_value else set()):
            raise _refused(beside, f"no other keyword beside {name}, because only {name} would be enforced")
        if name == "$ref":
            self._reference(value)
        elif not is_value or name == "enum":
            if not isinstance(value, list) or not value:
                raise _refused(value, f"a non-empty list for {name}")
            if name == "anyOf":
                self._each(value)
        if is_value and "type" in schema:
            values = value if name == "enum" else [value]
            for each in values:
                if not any(_is_a(each, kind) for kind in _types(schema)):
                    raise _refused(each, f"values of {name} that match `type`")

    def _reference(self, value: Any) -> None:
        if value == "#":
            return
        where, _, name = str(value).removeprefix("#/").partition("/")
        if not str(value).startswith("#/") or name not in _object(self._root, where) or where not in _NOTES:
            raise _refused(value, "a $ref that is #, or #/$defs/NAME with a NAME that exists")

    def _typed(self, schema: dict[str, Any], types: list[str]) -> None:
        accepted = {keyword for kind in types for keyword in _KEYWORDS[kind]}
        for name in sorted(schema.keys() - _NOTES - {"type"} - accepted):
            known = any(name in keywords for keywords in _KEYWORDS.values())
            raise _refused(
                name,
                "the matching `type` beside this keyword"
                if known
                else "a schema without this keyword, which would not be enforced",
            )
        for name in (*_LENGTHS, *_COUNTS):
            value = schema.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LONGEST:
                raise _refused(value, f"a value of {name} from 0 to {_LONGEST:,}")
        self._text(schema)
        if any(name in schema for name in _NUMBERS):
            self._count(_RANGES)
        if schema.get("items") is not False:
            self._schema(schema.get("items", True))
        prefix = schema.get("prefixItems", [])
        if not isinstance(prefix, list):
            raise _refused(prefix, "a list for prefixItems")
        self._count(_PROPERTIES, len(prefix))
        self._each(prefix)
        self._object(schema)

    def _text(self, schema: dict[str, Any]) -> None:
        lengths = tuple(schema.get(name) for name in _LENGTHS)
        told = [name for name in ("pattern", "format") if name in schema]
        if len(told) > 1 or (told and lengths != (None, None)):
            raise _refused(told[0], "only one of pattern, format and a length, because they cannot be combined")
        if lengths not in ((None, None), *self._lengths):
            self._lengths.add((lengths[0], lengths[1]))
            self._count(_DEAR if max(int(each or 0) for each in lengths) > _SHORT else _DIFFERENT)
        if "format" in schema and schema["format"] not in _FORMATS:
            raise _refused(schema["format"], f"one of these values for format: {', '.join(_FORMATS)}")
        if "pattern" in schema:
            try:
                self._count(_PATTERNS, pattern_size(str(schema["pattern"])))
            except InvalidInput:
                raise
            except ValueError as error:
                raise _refused(schema["pattern"], f"a supported pattern; {error}") from None

    def _object(self, schema: dict[str, Any]) -> None:
        properties, required = _object(schema, "properties"), schema.get("required", [])
        if not isinstance(required, list) or not all(name in properties for name in required):
            raise _refused(required, "names of existing properties in `required`")
        self._count(_PROPERTIES, len(properties))
        self._count(_OPTIONAL, len(properties) - len(set(required)))
        self._each(properties.values())
        others = schema.get("additionalProperties", False)
        if others is not False:
            self._schema(others)
            if properties:
                self._count(_DEAR)


def _types(schema: dict[str, Any]) -> list[str]:
    """Of what it describes; without one it is the only one that its keywords are for."""
    if "type" not in schema:
        return ["object"] if "properties" in schema else ["array"] if "items" in schema else []
    given = schema["type"]
    types = given if isinstance(given, list) else [given]
    if not types or not all(isinstance(each, str) and each in _KEYWORDS for each in types):
        raise _refused(given, f"one of these values for type: {', '.join(_KEYWORDS)}")
    return types


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON[kind]) or (kind == "integer" and isinstance(value, float) and value.is_integer())


def _object(schema: dict[str, Any], name: str) -> dict[str, Any]:
    value = schema.get(name, {})
    if not isinstance(value, dict):
        raise _refused(value, f"a JSON object for {name}")
    return value


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, (dict, list)):
        return
    if left == 0:
        raise _refused("deeply nested JSON", f"at most {_DEEPEST} levels of nesting")
    for each in value.values() if isinstance(value, dict) else value:
        _check_depth(each, left - 1)


def _refused(value: object, accepted: str) -> InvalidInput:
    return InvalidInput("json_schema", value, accepted)
