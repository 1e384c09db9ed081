"""Multipart forms, read as they come in by python-multipart, with a limit on everything that is kept."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import python_multipart
from python_multipart.exceptions import ParseError

from twoshift.errors import InvalidInput, Malformed

__all__ = ["FormEvent", "FormReader", "PartBegin", "PartData", "PartEnd", "boundary_of"]

_MOST_PARTS = 16
_MOST_HEADERS = 8  # of a part
_MOST_HEADER_BYTES = 8 << 10
_SILENT = logging.Logger("python_multipart", logging.CRITICAL)
_BOUNDARY = re.compile(r"""[0-9a-zA-Z'()+_,\-./:=? ]{0,69}[0-9a-zA-Z'()+_,\-./:=?]""")
_PARAMETER = re.compile(r';\s*([a-zA-Z*]+)=("(?:[^"\\]|\\.)*"|[^\s;"]*)')

_CHARSETS = ("utf-8", "iso-8859-1")


@dataclass(frozen=True, slots=True)
class PartBegin:
    """A part."""

    name: str
    filename: str | None  # None: a plain field


@dataclass(frozen=True, slots=True)
class PartData:
    """Some of its bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    """It was all."""


FormEvent = PartBegin | PartData | PartEnd


def boundary_of(content_type: str | None) -> bytes:
    """What stands between the parts; raises InvalidInput where it is no form."""
    kind, _, rest = (content_type or "").partition(";")
    if kind.strip().lower() != "multipart/form-data":
        raise InvalidInput("content-type", content_type, "multipart/form-data with a boundary")
    found = dict(_parameters(f";{rest}")).get("boundary", "")
    if not _BOUNDARY.fullmatch(found):
        raise InvalidInput("content-type", content_type, "a boundary of 1 to 70 characters")
    return found.encode()


class FormReader:
    """Bytes in, events out; raises InvalidInput where they are no form."""

    def __init__(self, boundary: bytes) -> None:
        self._events: list[FormEvent] = []
        self._parts = 0
        self._is_over = False
        self._header, self._value, self._disposition = b"", b"", b""  # of the part that begins
        callbacks = {
            "on_part_begin": self._part_begins,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_ends,
            "on_headers_finished": lambda: self._events.append(_begin(self._disposition)),
            "on_part_data": lambda data, start, end: self._events.append(PartData(data[start:end])),
            "on_part_end": lambda: self._events.append(PartEnd()),
            "on_end": self._ends,
        }
        parser = python_multipart.MultipartParser(
            boundary, cast(Any, callbacks), max_header_count=_MOST_HEADERS, max_header_size=_MOST_HEADER_BYTES
        )
        parser.logger = _SILENT  # what a client sends wrong is the client's to read, not the log's
        self._parser = parser

    def feed(self, data: bytes) -> list[FormEvent]:
        """What the next bytes bring."""
        if not self._is_over:  # what follows the last boundary is nobody's
            try:
                self._parser.write(data)
            except ParseError as error:
                raise Malformed(
                    "body", f"parts that are separated by the boundary in the content-type ({error})"
                ) from None
        events, self._events = self._events, []
        return events

    def end(self) -> None:
        """Raises InvalidInput where there should be more."""
        if not self._is_over:
            raise Malformed("body", "a form that ends with its boundary and `--`")

    def _part_begins(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > _MOST_PARTS:
            raise Malformed("body", f"a form of at most {_MOST_PARTS} parts")

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ends(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _ends(self) -> None:
        self._is_over = True


def _begin(disposition: bytes) -> PartBegin:
    kind, _, rest = disposition.decode("utf-8", "replace").partition(";")
    given = dict(_parameters(f";{rest}"))
    if kind.strip().lower() != "form-data" or not given.get("name"):
        raise Malformed("body", "the header `content-disposition: form-data` with a name in each part of the form")
    return PartBegin(given["name"], given.get("filename", _extended(given.get("filename*", ""))))


def _extended(value: str) -> str | None:
    """A name as RFC 8187 has it, `UTF-8''a%20b`; None where it is none."""
    charset, _, rest = value.partition("'")
    _language, mark, name = rest.partition("'")
    if not mark or charset.lower() not in _CHARSETS:
        return None
    return unquote(name, charset, "replace")


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    for name, value in _PARAMETER.findall(text):
        plain = re.sub(r'\\(["\\])', r"\1", value[1:-1]) if value.startswith('"') else value
        yield name.lower(), plain
