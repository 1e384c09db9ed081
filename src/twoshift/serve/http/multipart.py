"""Multipart forms, read as they come in: a small parser with a limit on everything that it has to keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from twoshift.errors import InvalidInput, Malformed

__all__ = ["Begin", "Data", "End", "FormEvent", "FormReader", "boundary_of"]

_MOST_PARTS = 16
_MOST_HEADER_BYTES = 8 << 10  # of a part
_MOST_PREAMBLE_BYTES = 4 << 10  # before the first
_BOUNDARY = re.compile(r"""[0-9a-zA-Z'()+_,\-./:=? ]{0,69}[0-9a-zA-Z'()+_,\-./:=?]""")
_PARAMETER = re.compile(r';\s*([a-zA-Z*]+)=("(?:[^"\\]|\\.)*"|[^\s;"]*)')

_CHARSETS = ("utf-8", "iso-8859-1")


@dataclass(frozen=True, slots=True)
class Begin:
    """A part."""

    name: str
    filename: str | None  # None: a plain field


@dataclass(frozen=True, slots=True)
class Data:
    """Some of its bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """It was all."""


FormEvent = Begin | Data | End


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
        self._mark = b"\r\n--" + boundary
        self._held = b"\r\n"  # as if there were a line before: the first mark looks like all others
        self._step = self._preamble
        self._parts = self._skipped_bytes = 0
        self._is_over = False

    def feed(self, data: bytes) -> Iterator[FormEvent]:
        """What the next bytes bring."""
        if self._is_over:
            return  # what follows the last mark is nobody's
        self._held += data
        while (event := self._step()) is not None:
            if not isinstance(event, bool):
                yield event
            if self._is_over:
                return

    def end(self) -> None:
        """Raises InvalidInput where there should be more."""
        if not self._is_over:
            raise Malformed("body", "a form that ends with its boundary and `--`")

    # Each step gives an event, True where it got on without one, and None where it needs more bytes

    def _preamble(self) -> FormEvent | bool | None:
        found = self._held.find(self._mark)
        if found < 0:
            cut = max(0, len(self._held) - len(self._mark))
            self._skipped_bytes += cut
            self._held = self._held[cut:]
            if self._skipped_bytes > _MOST_PREAMBLE_BYTES:
                raise Malformed("body", "a form that begins with the boundary of its content-type")
            return None
        self._held = self._held[found + len(self._mark) :]
        self._step = self._after_mark
        return True

    def _after_mark(self) -> FormEvent | bool | None:
        if len(self._held) < 2:
            return None
        if self._held.startswith(b"--"):
            self._is_over = True
            return True
        if not self._held.startswith(b"\r\n"):
            raise Malformed("body", "a line end behind each boundary of the form")
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise Malformed("body", f"a form of at most {_MOST_PARTS} parts")
        self._step = self._headers  # the line end stays: a part may have no headers
        return True

    def _headers(self) -> FormEvent | bool | None:
        found = self._held.find(b"\r\n\r\n")
        if max(found, 0) > _MOST_HEADER_BYTES or (found < 0 and len(self._held) > _MOST_HEADER_BYTES):
            raise Malformed("body", f"at most {_MOST_HEADER_BYTES:,} bytes of headers in a part of the form")
        if found < 0:
            return None
        lines, self._held = self._held[:found].split(b"\r\n"), self._held[found + 2 :]
        self._step = self._first_data
        return _begin([line for line in lines if line])

    def _first_data(self) -> FormEvent | bool | None:
        """The line end behind the headers may be that of the next mark: an empty part."""
        if len(self._held) < len(self._mark) and self._mark.startswith(self._held):
            return None
        if not self._held.startswith(self._mark):
            self._held = self._held[2:]
        self._step = self._data
        return True

    def _data(self) -> FormEvent | bool | None:
        found = self._held.find(self._mark)
        if found == 0:
            self._held = self._held[len(self._mark) :]
            self._step = self._after_mark
            return End()
        keep = found if found > 0 else len(self._held) - len(self._mark) + 1
        if keep <= 0:
            return None
        data, self._held = self._held[:keep], self._held[keep:]
        return Data(data)


def _begin(lines: list[bytes]) -> Begin:
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            given = dict(_parameters(value.decode("utf-8", "replace")))
            if value.partition(b";")[0].strip().lower() == b"form-data" and given.get("name"):
                return Begin(given["name"], given.get("filename", _extended(given.get("filename*", ""))))
    raise Malformed("body", "a content-disposition of form-data with a name in each part of the form")


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
