"""The lines of a batch: requests as they come in, results and errors as they go out."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from twoshift.endpoints.faults import Fault
from twoshift.endpoints.json_body import malformed
from twoshift.endpoints.known import told_openai
from twoshift.errors import Malformed

__all__ = [
    "CheckedLine",
    "OutputLine",
    "RequestLine",
    "checked_line",
    "model_of",
    "not_run_line",
    "read_line",
    "response_line",
]


class RequestLine(msgspec.Struct):
    """A request."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class Response(msgspec.Struct):
    """What the live endpoint would have said."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class NotRun(msgspec.Struct):
    """Why a request was never run."""

    code: str
    message: str


class OutputLine(msgspec.Struct):
    """A line of an output or an error file."""

    id: str
    custom_id: str
    response: Response | None
    error: NotRun | None


class Named(msgspec.Struct):
    """A request's body, as far as a batch is checked."""

    model: str


class CheckedLine(msgspec.Struct):
    """A line that has all that a batch needs, with the name of its model."""

    custom_id: str
    method: str
    url: str
    body: Named


_lines, _named = msgspec.json.Decoder(RequestLine), msgspec.json.Decoder(Named)
_checked = msgspec.json.Decoder(CheckedLine)
_encoder = msgspec.json.Encoder()


def checked_line(line: bytes) -> CheckedLine | None:
    """All of it in one decoding; None where something is wrong, which `read_line` and `model_of` say."""
    try:
        return _checked.decode(line)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def read_line(line: bytes) -> RequestLine:
    """Raises InvalidInput that says what is wrong with it."""
    return _decoded(_lines, line, "line")


def model_of(body: msgspec.Raw) -> str:
    """Whom a request is for; raises InvalidInput where it does not say so."""
    return _decoded(_named, bytes(body), "body").model


def response_line(batch: str, custom_id: str, answer: bytes | Fault) -> bytes:
    """A request that was run: the reply's body, or how it failed."""
    status, body = (answer.status, told_openai(answer)) if isinstance(answer, Fault) else (200, answer)
    made = _id(batch, custom_id)
    return _line(OutputLine(f"batch_req_{made}", custom_id, Response(status, f"req_{made}", msgspec.Raw(body)), None))


def not_run_line(batch: str, custom_id: str, code: str, message: str) -> bytes:
    """A request that was never run."""
    return _line(OutputLine(f"batch_req_{_id(batch, custom_id)}", custom_id, None, NotRun(code, message)))


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes, field: str) -> Any:
    try:
        return decoder.decode(text)
    except UnicodeDecodeError:
        raise Malformed(field, "UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise malformed(error, field) from None


def _id(batch: str, custom_id: str) -> str:
    """The same each time: a shard that is done twice, or a file that is put together twice, says the same."""
    return hashlib.blake2b(f"{batch}\n{custom_id}".encode(), digest_size=12).hexdigest()


def _line(line: OutputLine) -> bytes:
    return _encoder.encode(line) + b"\n"
