"""A batch's input, looked through before anything is run: every line, once, in little memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from twoshift.batch.kinds.request_lines import CheckedLine, RequestLine, checked_line, model_of, read_line
from twoshift.errors import InvalidInput

__all__ = ["Checked", "check_input"]

_MOST_LINE_BYTES = 16 << 20
_MOST_ERRORS = 100  # that are told
_BOM = b"\xef\xbb\xbf"
_STOP_EVERY = 128  # lines, between looks at whether to go on


@dataclass(slots=True)
class Checked:
    """What was found."""

    total: int = 0
    model: str | None = None  # that is served, and whose adapters the requests name
    adapters: set[str] = field(default_factory=set[str])
    unknown: set[str] = field(default_factory=set[str])  # models that are not served
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def wrong(self, code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        """Something that is; the first ones are told."""
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append({"code": code, "message": message[:1000], "line": line, "param": param})


def check_input(
    file: BinaryIO,
    endpoint: str,
    served: Mapping[str, str],  # names, each with that of the model whose adapter it is, or its own
    most_requests: int,
    go_on: Callable[[], None] = lambda: None,  # asked now and then; raises where nobody wants to know any more
) -> Checked:
    """How many requests there are and for which model, or what is wrong with them, by line."""
    checked, number, seen = Checked(), 0, set[bytes]()
    while line := file.readline(_MOST_LINE_BYTES + 1):
        number += 1
        if number % _STOP_EVERY == 0:
            go_on()
        if len(line) > _MOST_LINE_BYTES:
            checked.wrong("line_too_long", f"the line has more than {_MOST_LINE_BYTES:,} bytes", number)
            break
        line = line.removeprefix(_BOM) if number == 1 else line
        if line.isspace() or not line:
            continue
        checked.total += 1
        if checked.total > most_requests:
            checked.wrong(
                "too_many_requests", f"more than {most_requests:,} requests in one file: send several files", number
            )
            break
        _check_line(line, number, endpoint, served, seen, checked)
    if not number or (not checked.total and not checked.errors):
        checked.wrong("empty_file", "the file has no requests")
    return checked


def _check_line(
    line: bytes, number: int, endpoint: str, served: Mapping[str, str], seen: set[bytes], checked: Checked
) -> None:
    try:
        asked = checked_line(line) or read_line(line)
    except InvalidInput as error:
        param = None if error.field == "line" else error.field
        checked.wrong("invalid_json_line" if param is None else "invalid_request_line", str(error), number, param)
        return
    # Of ids only digests are kept: they may be long, and many
    digest = hashlib.blake2b(asked.custom_id.encode(), digest_size=16).digest()
    if not asked.custom_id:
        checked.wrong("missing_required_parameter", "custom_id is empty", number, "custom_id")
    elif digest in seen:
        checked.wrong(
            "duplicate_custom_id",
            f"custom_id {asked.custom_id[:100]!r} occurs on an earlier line, too",
            number,
            "custom_id",
        )
    seen.add(digest)
    if asked.method != "POST":
        checked.wrong("invalid_method", f"method {asked.method[:20]!r}: expected POST", number, "method")
    if asked.url != endpoint:
        checked.wrong(
            "invalid_url", f"url {asked.url[:200]!r}: expected {endpoint}, the endpoint of the batch", number, "url"
        )
    _check_model(asked, number, served, checked)


def _check_model(asked: CheckedLine | RequestLine, number: int, served: Mapping[str, str], checked: Checked) -> None:
    try:
        model = asked.body.model if isinstance(asked, CheckedLine) else model_of(asked.body)
    except InvalidInput as error:
        checked.wrong("invalid_request_body", str(error), number, f"body.{error.field}".removesuffix(".body"))
        return
    owner = served.get(model, model)
    checked.model = checked.model or owner
    if owner != checked.model:
        told = f"model {model[:200]!r}: expected {checked.model[:200]!r}, as on the previous lines"
        checked.wrong("mismatched_model", told, number, "body.model")
    elif model not in served and model not in checked.unknown:
        checked.unknown.add(model)
        told = f"model {model[:200]!r}: expected one of {', '.join(sorted(served))}"
        checked.wrong("model_not_found", told, number, "body.model")
    elif owner != model:
        checked.adapters.add(model)
