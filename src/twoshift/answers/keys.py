"""Keys of rows: integers or texts, as bytes and as hashes."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Any

from twoshift.errors import InvalidInput

__all__ = ["LONGEST_KEY_BYTES", "KeyKind", "digest_of", "key_bytes", "key_of"]

LONGEST_KEY_BYTES = 1 << 16  # a key may be a whole text
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class KeyKind(StrEnum):
    """What a column of keys has."""

    INTEGER = "integer"
    TEXT = "text"


def key_bytes(kind: KeyKind, key: Any, field: str) -> bytes:
    """As tables have it; raises InvalidInput that names the field of the request."""
    if kind is KeyKind.INTEGER:
        if not isinstance(key, int) or isinstance(key, bool) or not _LEAST <= key <= _MOST:
            raise InvalidInput(field, key, "an integer of 64 bits: the keys of the precomputed answers are integers")
        return key.to_bytes(8, "little", signed=True)
    if not isinstance(key, str):
        raise InvalidInput(field, key, "a text: the keys of the precomputed answers are texts")
    return key.encode("utf-8", "surrogatepass")


def key_of(kind: KeyKind, data: bytes) -> int | str:
    """The other way round."""
    return int.from_bytes(data, "little", signed=True) if kind is KeyKind.INTEGER else data.decode("utf-8", "replace")


def digest_of(key: bytes) -> bytes:
    """Eight bytes that are spread evenly, whatever keys look like."""
    return blake2b(key, digest_size=8).digest()
