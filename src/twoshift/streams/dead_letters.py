"""Rows that could not be scored, with what they were and why: a file for each window that has some."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from twoshift.errors import NotFound
from twoshift.ports import Blobs

__all__ = ["DeadLetter", "DeadLetters"]

_FOLDER = "_dead"


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row without a result, or a file that cannot be read."""

    source: str  # the file, or the messages that it was among
    error: str
    payload: str | None = None  # of a message
    payload_base64: str | None = None  # the same, where it is not UTF-8

    @classmethod
    def of(cls, source: str, error: str, payload: bytes | None = None) -> DeadLetter:
        """As it is written."""
        if payload is None:
            return cls(source, error)
        try:
            return cls(source, error, payload.decode())
        except UnicodeDecodeError:
            return cls(source, error, None, base64.b64encode(payload).decode())


class DeadLetters:
    """The folder of them. A window's file is there before its part; one whose part is not there counts for nothing."""

    def __init__(self, output: Blobs, folder: str) -> None:
        self._output, self._folder = output, self.folder_of(folder)

    @staticmethod
    def folder_of(output: str) -> str:
        """Where they are."""
        return f"{output.rstrip('/')}/{_FOLDER}"

    def write(self, window: int, letters: Sequence[DeadLetter]) -> None:
        """Those of a window, in place of what an attempt before may have left."""
        lines = [msgspec.json.encode(each) + b"\n" for each in letters]
        if lines:
            self._output.write(self._location(window), b"".join(lines))
        else:
            self._output.delete(self._location(window))

    def remove_from(self, window: int) -> None:
        """What windows that were not committed have left."""
        try:
            found = self._output.list(f"{self._folder}/")
        except NotFound:
            return
        for blob in found:
            if blob.location >= self._location(window):
                self._output.delete(blob.location)

    def _location(self, window: int) -> str:
        return f"{self._folder}/window-{window:06d}.jsonl"
