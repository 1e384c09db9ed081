"""The OpenAPI document: from the routes that there are, and the types that they read and write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from twoshift._version import __version__
from twoshift.serve.keys import SCOPES, Access

__all__ = ["ASKING", "Operation", "Route", "document"]

ASKING = (400, 403, 404, 413, 429, 500, 503, 504)  # how a request to a model may fail, beside its key
_JSON = "application/json"
_SCHEMAS = "#/components/schemas/{name}"
_RETRY = ("retry-after", "retry-after-ms")
_MEANINGS = {
    200: "Done.",
    400: "The request is invalid: the error message names the field and the expected value.",
    206: "The requested range of the file.",
    304: "Not modified: the client's copy of the file is up to date.",
    401: "The API key is missing or unknown.",
    403: "The API key has no permission for this operation.",
    404: "The named resource does not exist.",
    408: "The request did not arrive in time.",
    413: "The request is too large for its deadline or for the server: send less, or set a longer timeout.",
    415: "The content type or encoding of the body is not supported.",
    416: "The requested range does not exist.",
    429: "The API key or its tenant is over a limit: retry after the time in the header retry-after.",
    500: "The model failed.",
    503: "The server has no free capacity, is not ready or shuts down: retry after the time in the header retry-after.",
    504: "The request was not answered by its deadline.",
}
_HEADERS = {
    "x-request-id": ("Id of the request: the id that the client sent, or a generated id.", {"type": "string"}, True),
    "server-timing": ("Time of each stage of the request, in milliseconds.", {"type": "string"}, False),
    "x-twoshift-version": ("Version of the model that answered.", {"type": "string"}, False),
    "retry-after": ("Seconds to wait before a retry.", {"type": "integer", "minimum": 0}, False),
    "retry-after-ms": ("Milliseconds to wait before a retry.", {"type": "integer", "minimum": 0}, False),
}
_TIMEOUT = {
    "name": "x-request-timeout-ms",
    "in": "header",
    "description": "Timeout in milliseconds (default: the SLO of the model; for a language model, no timeout).",
    "schema": {"type": "number", "minimum": 1, "maximum": 3_600_000},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route takes and gives. Types are those that its face decodes and encodes; a `str` is a media type."""

    summary: str
    gives: Any  # a type as JSON, or a media type
    fails: Any  # how its errors are written
    takes: Any = None
    takes_also: Sequence[str] = ()  # other media types of the same request
    gives_also: Sequence[str] = ()  # and of the same reply
    spare_nulls: bool = False  # whether its body may have other fields that are null
    may_be_empty: bool = False  # whether its body may be left out
    statuses: Sequence[int] = ()  # of its errors, beside 401
    also: Mapping[int, Any] = field(default_factory=dict[int, Any])  # replies with types of their own
    timed: bool = False  # whether a deadline may be given
    form: Mapping[str, Any] | None = None  # the schema of a multipart form, instead of `takes`
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])  # schemas of what may stand behind the path

    @property
    def reads_body(self) -> bool:
        return self.takes is not None or self.form is not None


class Route(NamedTuple):
    """A route as the document shows it."""

    method: str
    path: str
    needs: Access
    about: Operation | None


def document(routes: Sequence[Route], needs_keys: bool) -> dict[str, Any]:
    """OpenAPI 3.1, of the routes that say what they are."""
    described = [(route, route.about) for route in routes if route.about is not None]
    types = list({id(each): each for _, about in described for each in _types(about)}.values())
    made, schemas = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    schema_of = {id(each): schema for each, schema in zip(types, made, strict=True)}
    for _, about in described:
        if about.spare_nulls:
            schemas[about.takes.__name__]["additionalProperties"] = {"type": "null"}
    paths: dict[str, dict[str, Any]] = {}
    for route, about in described:
        shown = _operation(route, about, schema_of)
        if needs_keys and route.needs is not Access.OPEN:
            scopes = [route.needs] if route.needs in SCOPES else []
            shown["security"] = [{"key": scopes}]
            for status in (401, 403) if scopes else (401,):
                shown["responses"][str(status)] = _reply(status, about.fails, schema_of)
        paths.setdefault(route.path, {})[route.method.lower()] = shown
    headers = {
        name: {"description": about, "schema": schema, "required": needed}
        for name, (about, schema, needed) in _HEADERS.items()
    }
    keys = {"key": {"type": "http", "scheme": "bearer", "description": "API key, created with `twoshift key`."}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Twoshift", "version": __version__, "description": "Serves models within latency SLOs."},
        "paths": paths,
        "components": {"schemas": schemas, "headers": headers, "securitySchemes": keys},
    }


def _types(about: Operation) -> Iterator[Any]:
    for each in (about.takes, about.gives, about.fails, *about.also.values()):
        if each is not None and not isinstance(each, str):
            yield each


def _operation(route: Route, about: Operation, schema_of: Mapping[int, Any]) -> dict[str, Any]:
    replies = {200: about.gives, **dict.fromkeys(about.statuses, about.fails), **about.also}
    shown: dict[str, Any] = {
        "summary": about.summary,
        "operationId": "_".join([route.method.lower(), *re.findall(r"[\w-]+", route.path)]),
        "responses": {str(status): _reply(status, gives, schema_of) for status, gives in sorted(replies.items())},
    }
    shown["responses"]["200"]["content"] |= {kind: {} for kind in about.gives_also}
    names = re.findall(r"{(\w+)}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if about.timed:
        parameters.append(_TIMEOUT)
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in about.query.items()]
    if parameters:
        shown["parameters"] = parameters
    if about.form is not None:
        shown["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": about.form}}}
    if about.takes is not None:
        content = {_JSON: {"schema": schema_of[id(about.takes)]}} | {kind: {} for kind in about.takes_also}
        shown["requestBody"] = {"required": not about.may_be_empty, "content": content}
    return shown


def _reply(status: int, gives: Any, schema_of: Mapping[int, Any]) -> dict[str, Any]:
    content = {gives: {}} if isinstance(gives, str) else {_JSON: {"schema": schema_of[id(gives)]}}
    names = [*_HEADERS] if status in (429, 503) else [name for name in _HEADERS if name not in _RETRY]
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {"description": _MEANINGS[status], "headers": headers, "content": content}
