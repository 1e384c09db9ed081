"""The bytes of an input file, and what it means when they cannot be read."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from twoshift.batch.inputs.file import InputFile
from twoshift.errors import Broken, first_line
from twoshift.ports import Blobs

__all__ = ["Source", "decompressed", "line_chunks", "opened", "range_chunks", "text_start", "whole_chunks"]

_CHUNK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_NEWLINE = b"\n"


class Source:
    """An open file that remembers whether reading it failed: a lost connection is no damaged file."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.failure: Exception | None = None

    @property
    def closed(self) -> bool:
        """Whether who opened it has closed it."""
        return self._handle.closed

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        try:
            return self._handle.read(size)
        except Exception as error:
            self.failure = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go there."""
        return self._handle.seek(offset, whence)

    def tell(self) -> int:
        """Where it stands."""
        return self._handle.tell()

    def readable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing: one reader after the other is put on it, and pyarrow's close it."""

    def arrow(self) -> pa.NativeFile:
        """As pyarrow takes it."""
        return pa.PythonFile(self, mode="r")


@contextmanager
def opened(file: InputFile, blobs: Blobs) -> Iterator[Source]:
    """The file as it was listed; raises Broken where it has changed, at the beginning or by the end of the block.

    What its format's reader raises inside means that it is damaged, and becomes Broken.
    """
    _require_unchanged(file, blobs)
    handle = blobs.open(file.location)
    source = Source(handle)
    try:
        with handle:
            yield source
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        if isinstance(source.failure, OSError):
            raise Broken(f"{file.location} cannot be read ({source.failure})") from error
        if source.failure is not None:
            raise source.failure from error
        _require_unchanged(file, blobs)  # a file that is replaced while it is read looks damaged
        advice = "write the file again, or remove it from the input"
        raise Broken(f"{file.location} is damaged or truncated ({first_line(error).rstrip('.')}); {advice}") from error
    _require_unchanged(file, blobs)  # who reads it hears of it before a shard of old and new rows is published


def _require_unchanged(file: InputFile, blobs: Blobs) -> None:
    found = blobs.stat(file.location)
    if found is not None and found.identity == file.identity:
        return
    now = (
        "was deleted" if found is None else "has changed"
    )  # not its size: a link may lead to somebody else's file by now
    advice = "restore the file and run the command again, or use another output folder"
    raise Broken(f"{file.location} {now} after the job listed its input; {advice}")


def decompressed(source: Source, compression: str | None) -> Source | pa.NativeFile | BinaryIO:
    """Its content from the beginning, as a stream."""
    source.seek(0)
    if compression is None:
        return source
    if compression == "xz":
        return cast("BinaryIO", lzma.LZMAFile(cast("BinaryIO", source)))
    return pa.CompressedInputStream(source.arrow(), compression)


def whole_chunks(stream: Any, chunk_bytes: int | None = None) -> Iterator[bytes]:
    """All of a text, without the mark that some editors put at its beginning."""
    first = True
    while chunk := stream.read(chunk_bytes or _CHUNK_BYTES):
        if text := chunk.removeprefix(_BOM) if first else chunk:
            yield text
        first = False


def text_start(source: Source) -> int:
    """Where a plain text begins: behind that mark."""
    source.seek(0)
    return len(_BOM) if source.read(len(_BOM)) == _BOM else 0


def range_chunks(source: Source, start: int, stop: int) -> Iterator[bytes]:
    """The bytes [start, stop); raises EOFError where the file has become shorter."""
    source.seek(start)
    at = start
    while at < stop:
        chunk = source.read(min(_CHUNK_BYTES, stop - at))
        if not chunk:
            raise EOFError(f"the file ends at byte {at}, but was longer when the job listed it")
        yield chunk
        at += len(chunk)


def line_chunks(source: Source, start: int, stop: int) -> Iterator[bytes]:
    """The lines that begin in [start, stop), whole: the last may end behind it."""
    first = text_start(source) if start <= len(_BOM) else 0
    at = first if start <= first else _next_line(source, start, stop)
    if at >= stop:
        return
    tail = b""
    for chunk in range_chunks(source, at, stop):
        tail = chunk[-1:]
        yield chunk
    while tail != _NEWLINE and (chunk := source.read(_CHUNK_BYTES)):
        end = chunk.find(_NEWLINE) + 1
        tail = _NEWLINE if end else b""
        yield chunk[:end] if end else chunk


def _next_line(source: Source, start: int, stop: int) -> int:
    """Where the first line begins at or after `start`; `stop` where none does before it."""
    at = start - 1  # a line begins at `start` where the byte before it ends one
    for chunk in range_chunks(source, at, stop):
        found = chunk.find(_NEWLINE)
        if found >= 0:
            return min(stop, at + found + 1)
        at += len(chunk)
    return stop
