"""Which schemas an answer that ends can keep to; of schemas that are checked otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["endless"]


def endless(root: dict[str, Any]) -> Any:
    """A schema inside `root` that has no finite answer, or None."""
    named = {"#": root} | {
        f"#/{where}/{name}": each for where in ("$defs", "definitions") for name, each in root.get(where, {}).items()
    }
    ending, before = set[str](), -1
    while len(ending) != before:
        before = len(ending)
        ending |= {name for name, each in named.items() if name not in ending and _ends(each, ending)}
    return next((each for each in _schemas(root) if not _ends(each, ending)), None)


def _ends(schema: Any, ending: set[str]) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return True
    if "$ref" in schema:
        return schema["$ref"] in ending
    if "anyOf" in schema:
        return any(_ends(each, ending) for each in schema["anyOf"])
    types = schema.get("type", [])
    if any(each not in ("object", "array") for each in ([types] if isinstance(types, str) else types)):
        return True
    return all(_ends(each, ending) for each in _needed(schema))


def _needed(schema: dict[str, Any]) -> list[Any]:
    """What no answer can be without."""
    least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
    others = [schema.get("items", True)] if least > len(first) else []
    return [*(schema["properties"][name] for name in schema.get("required", [])), *first[:least], *others]


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(schema, dict):
        return
    yield schema
    for name in ("$defs", "definitions", "properties"):
        for each in schema.get(name, {}).values():
            yield from _schemas(each)
    for each in (*schema.get("anyOf", []), *schema.get("prefixItems", [])):
        yield from _schemas(each)
    for name in ("items", "additionalProperties"):
        yield from _schemas(schema.get(name))
