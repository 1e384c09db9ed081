"""Rows that were computed live, as bytes: found again by their key and by what they were computed from."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.answers.layout import ColumnLayout, packed_values, values_of
from twoshift.answers.records import pack_record, unpack_record
from twoshift.errors import Broken

__all__ = ["KeptKey", "KeptRow", "input_digest", "pack_kept", "unpack_kept", "version_id"]

_DIGEST_BYTES = 16
_size = struct.Struct("<H")
_layouts = msgspec.msgpack.Decoder(tuple[ColumnLayout, ...])


class KeptKey(NamedTuple):
    """What a row is found by: another input is another row, whatever key a client gives it."""

    key: bytes
    digest: bytes  # of the version and the input

    @property
    def place(self) -> int:
        """Eight bytes that are spread evenly."""
        return int.from_bytes(blake2b(self.digest + self.key, digest_size=8).digest(), "big")


class KeptRow(NamedTuple):
    """A row as it was kept."""

    key: KeptKey
    made_unix_s: float
    columns: dict[str, NDArray[np.generic]]


def version_id(*facts: object) -> str:
    """The same for the same facts of a model: a file's name."""
    return blake2b(msgspec.json.encode(facts), digest_size=8).hexdigest()


def input_digest(version: str, row: Any) -> bytes | None:
    """Of a request's row, for one version of the model; None for a row that cannot be told from others."""
    try:
        data = row.encode("utf-8", "surrogatepass") if isinstance(row, str) else _encoder.encode(row)
    except (TypeError, ValueError, OverflowError):  # a value of the user's own class
        return None
    kind = b"text" if isinstance(row, str) else b"row"
    return blake2b(data, digest_size=_DIGEST_BYTES, key=version.encode(), person=kind).digest()


def pack_kept(key: KeptKey, made_unix_s: float, columns: Mapping[str, NDArray[np.generic]]) -> bytes | None:
    """The bytes of a row; None where it has a value that cannot be kept."""
    packed = packed_values(columns)
    if packed is None:
        return None
    layout = msgspec.msgpack.encode(packed[0])
    if len(layout) >> 16:
        return None
    return pack_record(key.key, made_unix_s, key.digest + _size.pack(len(layout)) + layout + packed[1])


def unpack_kept(data: bytes) -> KeptRow:
    """Raises Broken where a bit of it is another than was written."""
    record = unpack_record(data)
    at = record.at + _DIGEST_BYTES
    try:
        (size,) = _size.unpack_from(data, at)
        layouts: Sequence[ColumnLayout] = _layouts.decode(data[at + _size.size : at + _size.size + size])
    except (struct.error, msgspec.DecodeError) as error:
        raise Broken(f"an answer stored with --write-back is damaged, and must be computed again: {error}") from error
    columns = values_of(layouts, data, at + _size.size + size)
    return KeptRow(KeptKey(record.key, data[record.at : at]), record.made_unix_s, columns)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return value.tolist()
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
