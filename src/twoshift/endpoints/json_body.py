"""A request's JSON, read into the type that the OpenAPI document shows; what does not fit is refused by its field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec

from twoshift.errors import Inapplicable, InvalidInput, Malformed, TooLarge

__all__ = ["asked_of", "decoded", "has_field", "malformed"]

_MOST_BYTES = 16 << 20  # its values take many times its bytes, and the loop stands still while it is read
_PLACE = re.compile(r"at `\$\.?([^`]+)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_EXPECTED = re.compile(r"Expected `([\w |]+)`(?:, got `(\w+)`| (.+?))?(?: - at `[^`]*`)?$")
_ENUM = re.compile(r"Invalid enum value ('[^']*'|\S+)")
_KINDS = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "an object",
}  # fmt: skip
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_parameters = msgspec.json.Decoder(dict[str, msgspec.Raw])
# As types have what is known elsewhere and not used here: null, or nothing in it
_NO_USE = ("Expected `null`", "Expected `array` of length <= 0", "Expected `object` of length <= 0")


def decoded(
    decoder: msgspec.json.Decoder[Any], body: bytes | bytearray | memoryview, field: str = "body", else_: str = ""
) -> Any:
    """Raises InvalidInput that names the field; `else_` is what to send instead of too much."""
    if len(body) > _MOST_BYTES:
        raise TooLarge(field, f"{len(body):,} bytes of JSON", f"at most {_MOST_BYTES:,} bytes{else_}")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(error, field, _fields_of(decoder), decoder.type) from None


def asked_of(decoder: msgspec.json.Decoder[Any], body: bytes | memoryview) -> Any:
    """The same where a parameter that is null is one that was not given, whatever its name."""
    try:
        return decoded(decoder, body)
    except (Inapplicable, Malformed):
        if b"null" not in bytes(body):
            raise
    try:
        given = {name: value for name, value in _parameters.decode(body).items() if bytes(value) != b"null"}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(error) from None
    return decoded(decoder, msgspec.json.encode(given))


def _fields_of(decoder: msgspec.json.Decoder[Any]) -> Sequence[str]:
    """That are of use: one of type None is known elsewhere, and refused here."""
    read = decoder.type
    if not isinstance(read, type) or not issubclass(read, msgspec.Struct):
        return ()
    return [each.encode_name for each in msgspec.structs.fields(read) if each.type is not type(None)]


def has_field(body: bytes | bytearray | memoryview, name: str) -> bool:
    """Whether a body is an object with that field; it may be wrong in other ways."""
    if len(body) > _MOST_BYTES or f'"{name}"'.encode() not in bytes(body):
        return False
    try:
        return name in _parameters.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def malformed(error: Exception, field: str = "body", known: Sequence[str] = (), read: object = None) -> InvalidInput:
    """The error for what msgspec could not read; `known` are the fields that a body of the type `read` may have."""
    told = str(error)
    place, inner = _PLACE.search(told), _MISSING.search(told) or _UNKNOWN.search(told)
    where = f"{field}{place[1]}" if place and place[1].startswith("[") else place and place[1]
    named = ".".join(each for each in (where, inner and inner[1]) if each)
    if known and place is None and _UNKNOWN.search(told):
        return Inapplicable(named, True, f"because this endpoint accepts only the fields {', '.join(known)}")
    if _UNKNOWN.search(told) or told.startswith(_NO_USE):
        return Inapplicable(named, True, "because this endpoint does not support this field")
    if _MISSING.search(told):
        return Malformed(named, "a value; this field is required")
    accepted = _expected(told) or _choices(told, read, named)
    return Malformed(named or field, accepted or f"a request as described in /openapi.json ({told})")


def _expected(told: str) -> str:
    """What msgspec says of types, in JSON's words; empty where it says something else."""
    found = _EXPECTED.match(told)
    if found is None:
        return ""
    kinds = [each for each in found[1].split(" | ") if each != "null"] or ["null"]
    wanted = " or ".join(_KINDS.get(each, each) for each in kinds)
    if found[2]:
        return f"{wanted}, not {_KINDS.get(found[2], found[2])}"
    return f"{wanted} {found[3]}" if found[3] else wanted


def _choices(told: str, read: object, field: str) -> str:
    """The values of a field that has only a few; empty where that is not what is wrong."""
    if not _ENUM.match(told) or not isinstance(read, type) or not issubclass(read, msgspec.Struct):
        return ""
    kind = next((each.type for each in msgspec.structs.fields(read) if each.encode_name == field), None)
    values = [value for each in (kind, *get_args(kind)) if get_origin(each) is Literal for value in get_args(each)]
    return " or ".join(map(str, values))
