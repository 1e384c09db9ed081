"""Who has the files and runs the batches; and a desk where nobody is."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, BinaryIO, Protocol

from twoshift.batch_ports import BatchRecord, BatchWanted, FileRecord
from twoshift.errors import Disabled, TwoshiftError

__all__ = ["BatchDesk", "FileDesk", "FileUpload", "Limits", "NoBatches"]


class Limits(Protocol):
    """Of files."""

    @property
    def max_bytes(self) -> int: ...


class FileUpload(Protocol):
    """A file on its way; ended by `finish` or `abort`."""

    def begin(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def finish(self, filename: str, purpose: str, expires_s: float | None) -> FileRecord: ...

    def abort(self) -> None: ...


class FileDesk(Protocol):
    """Calls take a while: they are made in threads. An owner of None is everybody."""

    @property
    def limits(self) -> Limits: ...

    def upload(self, owner: str, size_bytes: int, check: Callable[[int, int], None]) -> FileUpload:
        """One that is yet to begin, where there is room for that size; this alone waits for nothing."""
        ...

    def get(self, file_id: str, owner: str | None = None) -> FileRecord: ...

    def list(
        self, owner: str | None, limit: int, after: str | None, ascending: bool, purpose: str | None
    ) -> list[FileRecord]: ...

    def open(self, file: FileRecord) -> BinaryIO: ...

    def remove(self, file_id: str, owner: str | None = None) -> None: ...


class BatchDesk(Protocol):
    """As FileDesk."""

    @property
    def files(self) -> FileDesk: ...

    def create(self, wanted: BatchWanted, owner: str | None) -> BatchRecord: ...

    def get(self, batch_id: str, owner: str | None) -> BatchRecord: ...

    def list(
        self, owner: str | None, limit: int, after: str | None, before: str | None = None, endpoint: str | None = None
    ) -> list[BatchRecord]: ...

    def remove(self, batch_id: str, owner: str | None) -> None: ...

    def cancel(self, batch_id: str, owner: str | None) -> BatchRecord: ...

    def retry(
        self, batch_id: str, owner: str | None, window: str | None = None, models: tuple[str, ...] = ()
    ) -> BatchRecord: ...


class NoBatches:
    """It says why."""

    max_bytes = 0

    def __init__(self, why: str | TwoshiftError) -> None:
        """What to install or to change; or the error itself, which says when it may be over."""
        self._why = why

    @property
    def files(self) -> Any:
        """None either."""
        return self

    @property
    def limits(self) -> Any:
        """Of no file at all."""
        return self

    def start(self) -> None:
        """There is nothing to go on with."""

    def close(self, grace_s: float) -> bool:
        """There is nothing to end."""
        return True

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any) -> Any:
            raise Disabled("batches", self._why) if isinstance(self._why, str) else copy(self._why)

        return refuse
