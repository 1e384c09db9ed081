"""Texts, or the model's own token ids: one or many."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.types import TokenIds
from twoshift.errors import Malformed, TooLarge

__all__ = ["texts_or_ids"]

_FIRST = re.compile(rb"\[[ \t\r\n]*(.)", re.DOTALL)  # what a list begins with
_text, _texts = msgspec.json.Decoder(str), msgspec.json.Decoder(list[str])
_ids, _id_lists = msgspec.json.Decoder(TokenIds), msgspec.json.Decoder(list[TokenIds])


def texts_or_ids(given: msgspec.Raw, most_rows: int, field: str) -> list[Any]:
    """A text, texts, tokens, or lists of tokens: as rows; raises InvalidInput."""
    text = bytes(given)
    if text.startswith(b'"'):
        return [decoded(_text, text, field)]
    first = _FIRST.match(text)
    match first and first[1]:
        case None:
            raise Malformed(field, "a string or a list of strings")
        case b'"' | b"]":
            return decoded(_texts, text, field)
        case b"[":
            if text.count(b"[") > most_rows + 1:  # before millions of lists are made
                raise TooLarge(field, f"{text.count(b'[') - 1:,} rows", f"at most {most_rows:,} rows in a request")
            return decoded(_id_lists, text, field)
        case _:
            return [decoded(_ids, text, field)]
