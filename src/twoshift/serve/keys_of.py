"""Requests whose rows may have keys, whichever endpoint they came to."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from twoshift.errors import Inapplicable, InvalidInput
from twoshift.serve.deployments import Deployment
from twoshift.serve.keyed import Asked, RequestKeys
from twoshift.serve.model import Answer
from twoshift.serve.service import Service

__all__ = ["ask", "row_keys", "text_keys"]

_TEXT = "text"


def ask(service: Service, model: Deployment, asked: Asked) -> Coroutine[Any, Any, Answer]:
    """From precomputed answers, where the deployment has some, and live; raises as the service does, and NotFound."""
    by_key = service.precomputed(model.name)
    if by_key is not None:
        return by_key.answer(service, model, asked)
    return service.answer(model, asked.rows, asked.timeout_s, asked.arrived_s, asked.caller, asked.visit)


def row_keys(service: Service, model: Deployment, rows: Sequence[Mapping[str, Any]]) -> RequestKeys | None:
    """Rows of named values: the field of the key's name, or the text where that is the key."""
    by_key = service.precomputed(model.name)
    if by_key is None:
        return None
    name = by_key.rules.key
    if by_key.text_is_key and not any(name in row for row in rows):
        name = _TEXT
    return RequestKeys([row.get(name) for row in rows], f"rows[{{}}].{name.replace('{', '{{').replace('}', '}}')}")


def text_keys(
    service: Service, model: Deployment, given: list[int | str | None] | int | str | None, rows: Sequence[Any]
) -> RequestKeys | None:
    """Texts: keys beside them, or the texts themselves where the job's text column is the key. Raises InvalidInput."""
    by_key = service.precomputed(model.name)
    if given is not None:
        values = given if isinstance(given, list) else [given]
        if by_key is None:
            raise Inapplicable("keys", values[:3], f"because {model.name} has no precomputed answers")
        if len(values) != len(rows):
            raise InvalidInput("keys", f"{len(values)} keys", f"{len(rows)} keys, one for each text of `input`")
        return RequestKeys(values, "keys[{}]")
    if by_key is None or not by_key.text_is_key:
        return None
    texts = [row["text"] if isinstance(row, dict) else row for row in rows]
    return RequestKeys([each if isinstance(each, str) else None for each in texts], "input[{}]")
