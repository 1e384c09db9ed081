"""A form with one file: its fields, and its bytes handed on as they come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from twoshift.errors import InvalidInput, Malformed
from twoshift.serve.http.messages import Request
from twoshift.serve.http.multipart import FormEvent, FormReader, PartBegin, PartData, PartEnd, boundary_of

__all__ = ["Form", "read_form"]

_FILE = "file"
_FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_MOST_FIELD_BYTES = 1024
_MOST_NAME = 255  # characters
_WRITTEN_BYTES = 1 << 20  # at a time


@dataclass(slots=True)
class Form:
    """What is known of it so far."""

    fields: dict[str, str] = field(default_factory=dict[str, str])
    filename: str = ""
    has_file: bool = False


class _Filling:
    """Events to a form; the file's bytes go to `write`, many at a time."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self.form, self._write = Form(), write
        self._part: PartBegin | None = None
        self._data = bytearray()

    async def take(self, event: FormEvent) -> None:
        match event:
            case PartBegin():
                self._begin(event)
            case PartData(data):
                self._data += data
                if self._is_file and len(self._data) >= _WRITTEN_BYTES:
                    await self._flush()
                elif not self._is_file and len(self._data) > _MOST_FIELD_BYTES:
                    raise Malformed(self._name, f"a value of at most {_MOST_FIELD_BYTES:,} bytes")
            case PartEnd():
                if self._is_file:
                    await self._flush()
                else:
                    self.form.fields[self._name] = self._data.decode("utf-8", "replace")
                    self._data.clear()

    def _begin(self, part: PartBegin) -> None:
        self._part = part
        if self._is_file:
            if self.form.has_file:
                raise InvalidInput(_FILE, part.filename, "a form with only one file")
            if part.filename is None:
                raise Malformed(_FILE, "a file with a name")
            name = part.filename.replace("\\", "/").rpartition("/")[2]
            self.form.has_file = True
            self.form.filename = "".join(each for each in name if each.isprintable())[:_MOST_NAME]
        elif part.name not in _FIELDS or part.name in self.form.fields:
            known = ", ".join((_FILE, *_FIELDS))
            raise Malformed(part.name[:80], f"a multipart form with only the fields {known}, each given once")

    @property
    def _is_file(self) -> bool:
        return self._name == _FILE

    @property
    def _name(self) -> str:
        return "" if self._part is None else self._part.name

    async def _flush(self) -> None:
        data = bytes(self._data)
        self._data.clear()
        await self._write(data)


async def read_form(request: Request, write: Callable[[bytes], Awaitable[None]]) -> Form:
    """The whole form; raises InvalidInput, and what `write` does."""
    reader = FormReader(boundary_of(request.header(b"content-type")))
    filling = _Filling(write)
    if request.stream is not None:
        async for piece in request.stream:
            for event in reader.feed(piece):
                await filling.take(event)
    reader.end()
    if not filling.form.has_file:
        raise InvalidInput(_FILE, None, "a form with a file in the field `file`")
    return filling.form
