"""docs/http.md and docs/http-types.md, written from the OpenAPI document that a server itself gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["render_http", "render_http_types"]

_INTRO = """# HTTP reference

`make docs` generates this page from the OpenAPI document of a server; a test checks that the page is up to date. A
running server returns the same document at `/openapi.json`.

A server with API keys expects the header `Authorization: Bearer KEY`; each operation names the scope that the key
needs. Every reply has the header `x-request-id`: the value from the request, or a generated one. Replies with status
429 or 503 have the headers `retry-after` (in seconds) and `retry-after-ms`. The header `x-request-timeout-ms` sets the
deadline of a request (default: the SLO of the model; for a language model, no deadline). [docs/serving.md](serving.md)
explains each status code. An error message names the field and the accepted values, in the format of the API that
received the request: OpenAI's, Cohere's, Anthropic's, or the Open Inference Protocol's.
"""
_TYPES = """# Types of the HTTP API

`make docs` generates this page from the OpenAPI document of a server; a test checks that the page is up to date.
[docs/http.md](http.md) lists the operations that use these types.
"""
# The first that begins a path names its section
_SECTIONS = {
    "/v1/embeddings": "Embeddings, ranking, scores, search",
    "/v1/rerank": "Embeddings, ranking, scores, search",
    "/v2/rerank": "Embeddings, ranking, scores, search",
    "/rerank": "Embeddings, ranking, scores, search",
    "/v1/score": "Embeddings, ranking, scores, search",
    "/v1/search": "Embeddings, ranking, scores, search",
    "/v1/lookup": "Embeddings, ranking, scores, search",
    "/v1/messages/batches": "Batches and files",
    "/v1/chat": "Language models",
    "/v1/completions": "Language models",
    "/v1/responses": "Language models",
    "/v1/messages": "Language models",
    "/tokenize": "Language models",
    "/detokenize": "Language models",
    "/v1/files": "Batches and files",
    "/v1/batches": "Batches and files",
    "/v1/jobs": "Jobs",
    "/v1/schedules": "Schedules and webhooks",
    "/v1/deliveries": "Schedules and webhooks",
    "/v1/deployments": "Versions and rollouts",
    "/v1/rollouts": "Versions and rollouts",
    "/v1/models": "Models",
    "/v1/derived": "Models",
    "/v2": "Open Inference Protocol",
    "": "Operation",
}
_ROW = "| field | type | required | default |\n|---|---|---|---|"
_JSON = "application/json"


def render_http(document: Mapping[str, Any]) -> str:
    """Every operation, by what it is for."""
    sections: dict[str, list[str]] = {title: [] for title in dict.fromkeys(_SECTIONS.values())}
    for path, methods in document["paths"].items():
        title = next(title for prefix, title in _SECTIONS.items() if path.startswith(prefix))
        sections[title] += [_operation(method, path, each) for method, each in methods.items()]
    shown = (f"## {title}\n\n" + "\n".join(those) for title, those in sections.items() if those)
    return "\n".join([_INTRO, *shown])


def render_http_types(document: Mapping[str, Any]) -> str:
    """Every type that requests and replies have, by name."""
    schemas: dict[str, Any] = document["components"]["schemas"]
    return "\n".join([_TYPES, *(_type(name, schemas[name]) for name in sorted(schemas, key=_short))])


def _operation(method: str, path: str, about: Mapping[str, Any]) -> str:
    lines = [f"### `{method.upper()} {path}`", "", _escaped(about["summary"]), ""]
    scopes = [scope for each in about.get("security", ()) for scope in each["key"]]
    key = f"scope `{scopes[0]}`" if scopes else "any scope" if "security" in about else "not required"
    lines.append(f"- API key: {key}")
    if "requestBody" in about:
        lines.append(f"- Body: {_content(about['requestBody']['content'])}")
    for kind in ("query", "header"):
        found = [each for each in about.get("parameters", ()) if each["in"] == kind]
        if found:
            lines.append(f"- {kind.title()}: " + ", ".join(f"`{p['name']}` ({_shown(p['schema'])})" for p in found))
    lines.append(f"- Reply: {_content(about['responses']['200']['content'])}")
    others = [status for status in sorted(about["responses"]) if status != "200"]
    if others:
        lines.append(f"- Other statuses: {', '.join(others)}")
    return "\n".join([*lines, ""])


def _content(content: Mapping[str, Any]) -> str:
    schema = content.get(_JSON, {}).get("schema")
    others = {kind: each for kind, each in content.items() if kind != _JSON or schema is None}
    named = (f"`{kind}`" + (f": {_shown(each['schema'])}" if "schema" in each else "") for kind, each in others.items())
    return ", or ".join([*([] if schema is None else [_shown(schema)]), *named])


def _type(name: str, schema: Mapping[str, Any]) -> str:
    lines = [f"## `{_short(name)}`{_module(name)}", "", *_about(schema)]
    fields = schema.get("properties")
    if fields is None:
        return "\n".join([*lines, _shown(schema), ""])
    needed = schema.get("required", ())
    rows = (
        f"| `{key}` | {_shown(each)} | {'yes' if key in needed else ''} | {_default(each)} |"
        for key, each in fields.items()
    )
    return "\n".join([*lines, _ROW, *rows, ""])


def _about(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("description"):
        yield from (_escaped(" ".join(schema["description"].split())), "")


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def _shown(schema: Mapping[str, Any]) -> str:
    """A schema in a few words; a named one as a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{_short(name)}`](http-types.md#{_anchor(name)})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_shown(each) for each in schema[several])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return f"list of {_shown(schema.get('items', {}))}"
        case "object" if "properties" in schema:
            return "form with " + ", ".join(f"`{name}`" for name in schema["properties"])
        case str(kind):
            return f"{kind}{_bounds(schema)}"
        case _:
            return "any"


def _bounds(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" from {least} to {most}"
    return f", at least {least}" if least is not None else f", at most {most}" if most is not None else ""


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _module(name: str) -> str:
    """Told where two types have one name."""
    module = name.rpartition(".")[0].rpartition(".")[2]
    return f" ({module})" if module else ""


def _anchor(name: str) -> str:
    """Of its heading, as GitHub and the site make it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", f"{_short(name)}{_module(name)}").lower())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
