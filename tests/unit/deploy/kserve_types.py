"""The kinds of KServe by the classes of its own client, which are read and not imported: it imports a whole server."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["is_installed", "unknown_fields"]

_CLASS = re.compile(r"class (V1\w+)\(object\)")
_INNER = re.compile(
    r"(?:list\[|dict\(str, )?(V1(?:alpha1|beta1)\w+)[\])]?"
)  # V1Container and the like are Kubernetes's


def is_installed() -> bool:
    return importlib.util.find_spec("kserve") is not None


def unknown_fields(kind: str, value: Any, at: str = "") -> list[str]:
    """Fields of a manifest that a class does not have."""
    if isinstance(value, list):
        return [name for number, each in enumerate(value) for name in unknown_fields(kind, each, f"{at}[{number}]")]
    fields, found = _fields().get(kind), list[str]()
    if fields is None or not isinstance(value, dict):  # a number or a text with a name of its own
        return []
    for name, each in value.items():
        if name not in fields:
            found.append(f"{at}.{name}")
        elif inner := _INNER.fullmatch(fields[name]):
            found += unknown_fields(inner[1], each, f"{at}.{name}")
    return found


@cache
def _fields() -> dict[str, dict[str, str]]:
    """Each class's fields, as JSON has them, with their types."""
    spec = importlib.util.find_spec("kserve")
    assert spec is not None
    assert spec.origin is not None
    found: dict[str, dict[str, str]] = {}
    for path in Path(spec.origin).with_name("models").glob("v1*.py"):
        text = path.read_text(encoding="utf-8")
        if name := _CLASS.search(text):
            types, names = _value(text, "openapi_types"), _value(text, "attribute_map")
            found[name[1]] = {names[each]: kind for each, kind in types.items()}
    return found


def _value(text: str, name: str) -> dict[str, str]:
    """What a class of generated code sets."""
    found = re.search(rf"^    {name} = (\{{.*?^    \}})", text, re.MULTILINE | re.DOTALL)
    return {} if found is None else ast.literal_eval(found[1].strip())
