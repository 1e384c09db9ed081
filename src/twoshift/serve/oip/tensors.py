"""A request's tensors, read from bytes, JSON or lists; what does not agree is refused by the tensor's name."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput, Malformed, Shown, TooLarge
from twoshift.serve.oip.datatypes import BF16, BYTES, DTYPES, KINDS

__all__ = ["GivenTensor", "bad_tensor", "from_json", "from_raw", "from_values", "texts_of"]

_MOST_AXES = 16
_LARGEST_AXIS = 1 << 40
_MOST_TEXTS = 1 << 18  # of one tensor: they are read one by one, and the loop stands still meanwhile
_PIECE_BYTES = 256 << 10  # of JSON numbers, that are decoded together
_LENGTH = struct.Struct("<I")
_raws, _element = msgspec.json.Decoder(list[msgspec.Raw]), msgspec.json.Decoder(Any)
_anything = msgspec.json.Decoder(list[Any])
_flat = {datatype: msgspec.json.Decoder(list[kind]) for datatype, kind in KINDS.items()}


class GivenTensor(msgspec.Struct):
    """One tensor: numbers in an array, texts in a list; both flat, row after row."""

    name: str
    datatype: str
    shape: Sequence[int]
    values: NDArray[Any] | list[str]


def bad_tensor(name: str, value: object, accepted: str) -> InvalidInput:
    """The error for one input."""
    return InvalidInput(_where(name), value, accepted)


def _where(name: str) -> str:
    return f"input {name[:80]!r}"


def from_raw(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> GivenTensor:
    """From bytes as the binary extension and gRPC have them."""
    count = _count(name, shape)
    if datatype == BYTES:
        return GivenTensor(name, datatype, shape, _texts(name, raw, count))
    dtype = np.dtype("<u2") if datatype == BF16 else DTYPES.get(datatype)
    if dtype is None:
        raise _unknown(name, datatype)
    if len(raw) != count * dtype.itemsize:
        accepted = f"{count * dtype.itemsize:,} bytes for {datatype} of the shape {list(shape)}"
        raise bad_tensor(name, f"{len(raw):,} bytes", accepted)
    return GivenTensor(name, datatype, shape, _numbers(datatype, raw, dtype))


def from_json(name: str, datatype: str, shape: Sequence[int], data: msgspec.Raw) -> GivenTensor:
    """From a JSON list, flat or nested: its order is what counts."""
    decoder = _flat.get(datatype)
    if decoder is None:
        raise _unknown(name, datatype, "; BF16 is supported only as binary data" if datatype == BF16 else "")
    if not data:
        raise Malformed(_where(name), "`data`, or `parameters.binary_data_size` and the bytes after the JSON")
    if datatype != BYTES and len(text := bytes(data)) > _PIECE_BYTES:
        return _from_pieces(name, datatype, shape, text)
    try:
        return from_values(name, datatype, shape, decoder.decode(data))
    except msgspec.DecodeError:
        return _from_nested(name, datatype, shape, data)
    except UnicodeDecodeError:
        raise _no_text(name, data) from None


def from_values(name: str, datatype: str, shape: Sequence[int], values: list[Any]) -> GivenTensor:
    """From a flat list of values that the datatype holds."""
    count = _count(name, shape)
    if len(values) != count:
        raise bad_tensor(name, f"{len(values):,} values", f"{count:,} values for the shape {list(shape)}")
    if datatype == BYTES:
        return GivenTensor(name, datatype, shape, values)
    try:
        return GivenTensor(name, datatype, shape, np.array(values, DTYPES[datatype]))
    except OverflowError:
        raise bad_tensor(name, Shown("a number that is too large"), f"values that {datatype} can hold") from None


def texts_of(name: str, elements: Sequence[bytes]) -> list[str]:
    """BYTES as texts; raises InvalidInput that says which is none."""
    _check_texts(name, len(elements))
    return [_text(name, number, element) for number, element in enumerate(elements)]


def _from_pieces(name: str, datatype: str, shape: Sequence[int], text: bytes) -> GivenTensor:
    """Numbers, many at a time: a decoder holds up every thread until it is done."""
    inner, decoder = text.translate(None, b"[]"), _flat[datatype]  # their order is what counts
    arrays, at = list[NDArray[Any]](), 0
    while at <= len(inner):
        end = inner.find(b",", at + _PIECE_BYTES)
        piece = inner[at : end if end >= 0 else len(inner)]
        try:
            values = decoder.decode(b"[%b]" % piece)
        except msgspec.DecodeError as error:
            raise bad_tensor(name, Shown("its data"), f"a list of {datatype} values ({error})") from None
        arrays.append(from_values(name, datatype, (len(values),), values).values)  # pyright: ignore[reportArgumentType]
        at += len(piece) + 1
        time.sleep(0)  # the others' turn
    whole = np.concatenate(arrays)
    if len(whole) != (count := _count(name, shape)):
        raise bad_tensor(name, f"{len(whole):,} values", f"{count:,} values for the shape {list(shape)}")
    return GivenTensor(name, datatype, shape, whole)


def _no_text(name: str, data: msgspec.Raw) -> InvalidInput:
    """The error for a list that holds a text which is none."""
    for number, element in enumerate(_elements(data)):
        try:
            _element.decode(element)
        except UnicodeDecodeError as error:
            return bad_tensor(name, bytes(element).strip(b'"')[:60], _not_utf8(number, error))
    return bad_tensor(name, Shown("its data"), "texts in UTF-8")


def _elements(data: msgspec.Raw) -> Iterator[msgspec.Raw]:
    """What a list and the lists in it hold."""
    for each in _raws.decode(data):
        if bytes(each).startswith(b"["):
            yield from _elements(each)
        else:
            yield each


def _from_nested(name: str, datatype: str, shape: Sequence[int], data: msgspec.Raw) -> GivenTensor:
    try:
        values = _anything.decode(data)
        for _ in range(_MOST_AXES):
            if not values or not all(type(each) is list for each in values):
                break
            values = list(chain.from_iterable(values))
        return from_values(name, datatype, shape, msgspec.convert(values, list[KINDS[datatype]]))
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_tensor(name, Shown("its data"), f"a list of {datatype} values ({error})") from None
    except UnicodeDecodeError:
        raise _no_text(name, data) from None


def _count(name: str, shape: Sequence[int]) -> int:
    """How many values it has. Rows of nothing are refused: they cost no bytes, so there could be any number."""
    if not 1 <= len(shape) <= _MOST_AXES:
        raise bad_tensor(
            name, f"{len(shape)} dimensions", f"1 to {_MOST_AXES} dimensions; the first is the number of rows"
        )
    count, least = 1, 0  # there may be no rows
    for size in shape:
        if not least <= size <= _LARGEST_AXIS:
            raise bad_tensor(name, list(shape), f"a shape with sizes from 1 to {_LARGEST_AXIS:,}")
        count, least = count * size, 1
    return count


def _texts(name: str, raw: bytes | memoryview, count: int) -> list[str]:
    """Elements of a 32-bit length and the bytes, one after the other."""
    _check_texts(name, count)
    texts = list[str]()
    at, end = 0, len(raw)
    while at < end and len(texts) < count:
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(raw, at)[0] if start <= end else start
        if at > end:
            break
        texts.append(_text(name, len(texts), raw[start:at]))
    if at != end or len(texts) != count:
        accepted = f"{count:,} elements, each a 32-bit length and its bytes, without extra bytes"
        raise bad_tensor(name, f"{end:,} bytes", accepted)
    return texts


def _check_texts(name: str, count: int) -> None:
    if count > _MOST_TEXTS:
        raise TooLarge(_where(name), f"{count:,} texts", f"at most {_MOST_TEXTS:,} texts")


def _text(name: str, number: int, element: bytes | memoryview) -> str:
    try:
        return str(element, "utf-8")
    except UnicodeDecodeError as error:
        raise bad_tensor(name, bytes(element[:60]), _not_utf8(number, error)) from None


def _not_utf8(number: int, error: UnicodeDecodeError) -> str:
    return f"texts in UTF-8; element {number} is invalid: {error.reason}"


def _numbers(datatype: str, raw: bytes | memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    if datatype == BF16:  # the upper half of a 32-bit float
        return (np.frombuffer(raw, dtype).astype(np.uint32) << 16).view(np.float32)
    if datatype == "BOOL":  # numpy takes a byte as it is, and a bool of 2 is neither
        return np.frombuffer(raw, np.uint8) != 0
    return np.frombuffer(raw, dtype)


def _unknown(name: str, datatype: str, more: str = "") -> InvalidInput:
    return bad_tensor(name, datatype, f"a datatype: one of {', '.join([*DTYPES, BF16, BYTES])}{more}")
