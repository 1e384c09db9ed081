"""What stands behind a path: pages of lists."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.serve.http.messages import Request

__all__ = ["id_schema", "limit_of", "limit_schema", "query_of", "strict_query"]


def query_of(request: Request, known: Collection[str]) -> dict[str, str]:
    """By name, each once; raises InvalidInput. Names that are not known are passed over, as OpenAI does."""
    found: dict[str, str] = {}
    for name, value in _pairs(request):
        if name in found and name in known:
            raise InvalidInput(name, value, "this parameter only once in the query of the URL")
        found[name] = value
    return {name: value for name, value in found.items() if name in known}


def strict_query(request: Request) -> dict[str, str]:
    """All that is given, each once; raises InvalidInput."""
    pairs = _pairs(request)
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise InvalidInput(name[:80], found[name][:80], "this parameter only once in the query of the URL")
    return found


def _pairs(request: Request) -> list[tuple[str, str]]:
    text = request.target.partition(b"?")[2].decode("latin-1")
    try:
        return urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise InvalidInput("query", text[:80], "a query of at most 100 parameters, in UTF-8") from None


def limit_of(asked: dict[str, str], default: int, most: int) -> int:
    """How many; raises InvalidInput."""
    given = asked.get("limit", str(default))
    if not given.isascii() or not given.isdigit() or len(given) > 6 or not 1 <= int(given) <= most:
        raise InvalidInput("limit", given, f"a whole number from 1 to {most}")
    return int(given)


def limit_schema(default: int, most: int) -> dict[str, Any]:
    """As the OpenAPI document has it."""
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


def id_schema() -> dict[str, Any]:
    """Of `after`."""
    return {"type": "string", "description": "Id of the last item of the previous page."}
