"""Errors as OpenAI's clients read them."""

from __future__ import annotations

import msgspec

from twoshift.endpoints.faults import Fault
from twoshift.endpoints.types import ErrorReply, ErrorTold

__all__ = ["told_openai"]

_REQUEST_ERROR = "invalid_request_error"
_encoder = msgspec.json.Encoder()


def told_openai(fault: Fault) -> bytes:
    """An error as OpenAI's clients read it."""
    kind = _REQUEST_ERROR if fault.kind == "context_length_exceeded" else fault.kind  # there only its code is special
    return _encoder.encode(ErrorReply(ErrorTold(fault.message, kind, fault.param, fault.kind)))
