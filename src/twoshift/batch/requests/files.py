"""The files of a server: bytes in a folder or a bucket, everything else in the database."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from twoshift.batch.requests.room import CheckStorage, StorageRoom, unlimited
from twoshift.batch_ports import FileRecord, FileStore
from twoshift.errors import Broken, InvalidInput, NotFound, TooLarge, TryLater, TwoshiftError
from twoshift.ports import Blobs

__all__ = ["FileLimits", "FileUpload", "StoredFiles", "new_id"]

_logger = logging.getLogger("twoshift.files")
_FULL_S = 60.0
_STAGED = f".staged-{secrets.token_hex(8)}"  # of this start: in a container the next one has the same process id
_BEGUN_S = 86_400.0  # after which nobody uploads it any more


def new_id(kind: str) -> str:
    """One that nobody can guess."""
    return f"{kind}{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What files may cost."""

    max_bytes: int = 200_000_000
    max_requests: int = 50_000
    retention_s: float = 30 * 86_400.0


class StoredFiles:
    """Any thread may call it; calls wait for the database and for the disk."""

    def __init__(
        self,
        store: FileStore,
        root: str,
        blobs_for: Callable[[str], Blobs],
        limits: FileLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.root, self.limits = store, root.rstrip("/"), limits
        self.blobs, self.blobs_for, self.clock = blobs_for(root), blobs_for, clock
        self.room = StorageRoom(store.stored_bytes)
        self._began_unix_s = clock()

    def upload(self, owner: str, size_bytes: int = 0, check: CheckStorage = unlimited) -> FileUpload:
        """A file that is yet to come, of at most that size where `check` matters; this alone waits for nothing."""
        return FileUpload(self, FileRecord(new_id("file-"), owner, self.clock()), size_bytes, check)

    def get(self, file_id: str, owner: str | None = None) -> FileRecord:
        """Raises NotFound."""
        return self.store.file(file_id, owner)

    def list(
        self, owner: str | None, limit: int, after: str | None, ascending: bool, purpose: str | None
    ) -> list[FileRecord]:
        """Those that are there."""
        return self.store.list_files(owner, limit, after, ascending, purpose)

    def open(self, file: FileRecord) -> BinaryIO:
        """Its bytes; raises Broken where they are gone."""
        try:
            return self.blobs.open(self.location(file.id))
        except InvalidInput as error:
            raise Broken(
                f"the content of file {file.id} is missing on the server; upload the file again, or, for an output "
                "file of a batch, submit the batch again"
            ) from error

    def remove(self, file_id: str, owner: str | None = None) -> None:
        """Raises NotFound, and InvalidInput where a batch that is not over reads it."""
        self.store.remove_file(file_id, owner)
        with contextlib.suppress(TwoshiftError):  # the janitor tries again
            self._drop(file_id)

    def sweep(self) -> None:
        """The janitor: what expired, what was deleted, and what was begun and never finished."""
        # An earlier server's uploads have ended with it; its own may last
        begun_before_unix_s = max(self._began_unix_s, self.clock() - _BEGUN_S)
        for file_id in self.store.unwanted_files(begun_before_unix_s, self.clock()):
            self._drop(file_id)
        self._remove_staged()

    def location(self, file_id: str) -> str:
        """Where its bytes lie."""
        return f"{self.root}/{file_id}"

    def folder(self, batch_id: str) -> str:
        """Where a batch's parts lie until its files are there."""
        return f"{self.root}/{batch_id}"

    def drop_folder(self, batch_id: str) -> None:
        """What a batch has left."""
        folder = self.folder(batch_id)
        if "://" not in folder:
            shutil.rmtree(folder, ignore_errors=True)
            return
        with contextlib.suppress(NotFound):
            for blob in self.blobs.list(folder):
                self.blobs.delete(blob.location)

    def _drop(self, file_id: str) -> None:
        self.blobs.delete(self.location(file_id))
        self.store.forget_file(file_id)

    def _remove_staged(self) -> None:
        """What other starts had begun to write here: who sweeps is the only server. S3's is removed elsewhere."""
        if "://" in self.root:
            return
        for path in Path(self.root, "_twoshift", "staging").glob("*.staged-*"):
            if not path.name.endswith(_STAGED):
                path.unlink(missing_ok=True)


class FileUpload:
    """One file on its way. It is begun, written, and ended by `finish` or, at any moment, by `abort`."""

    def __init__(self, desk: StoredFiles, record: FileRecord, most_bytes: int, check: CheckStorage) -> None:
        self._desk, self._record = desk, record
        self._most_bytes, self._check, self._has_room = most_bytes, check, False
        self._location = desk.location(record.id)
        self._staged: Path | None = None
        self._file: BinaryIO | None = None
        self._digest, self._bytes = hashlib.sha256(), 0
        self._aborted = False
        self._lock = threading.Lock()  # it may be given up while a piece is written

    def begin(self) -> None:
        """Raises TryLater, Elsewhere, and what `check` does."""
        with self._lock:
            if not self._aborted:
                self._desk.room.take(self._record.owner, self._most_bytes, self._check)
                self._has_room = True
                self._desk.store.add_file(self._record)
                self._staged = staged_path(self._desk.blobs, self._location)
                with writing():
                    self._file = self._staged.open("wb")

    def write(self, data: bytes) -> None:
        """The next bytes; raises TooLarge."""
        with self._lock:
            self._bytes += len(data)
            if self._bytes > self._desk.limits.max_bytes:
                raise too_large(self._desk.limits.max_bytes)
            self._digest.update(data)
            if self._file is None or self._aborted:
                return  # nobody waits for it
            with writing():
                self._file.write(data)

    def finish(self, filename: str, purpose: str, expires_s: float | None) -> FileRecord:
        """It is there, whole."""
        lasts_s = self._desk.limits.retention_s if expires_s is None else expires_s
        record = replace(
            self._record, filename=filename, purpose=purpose, size_bytes=self._bytes, sha256=self._digest.hexdigest(),
            expires_unix_s=self._record.created_unix_s + lasts_s,
        )  # fmt: skip
        with self._lock:
            if self._file is not None and self._staged is not None and not self._aborted:
                with writing():
                    self._file.close()
                self._desk.blobs.publish(self._staged, self._location)
                self._desk.store.processed(record)
                self._leave_room()  # from now on it is stored
        return record

    def abort(self) -> None:
        """Nothing of it stays."""
        with self._lock:
            self._aborted = True
            self._leave_room()
            if self._staged is None:
                return
            with contextlib.suppress(OSError):
                if self._file is not None:
                    self._file.close()
            self._staged.unlink(missing_ok=True)
        try:
            self._desk.blobs.delete(self._location)
            self._desk.store.forget_file(self._record.id)
        except TwoshiftError as error:  # the janitor tries again
            _logger.warning("the failed upload %s could not be removed yet: %s", self._record.id, error)

    def _leave_room(self) -> None:
        if self._has_room:
            self._has_room = False
            self._desk.room.give_back(self._record.owner, self._most_bytes)


def staged_path(blobs: Blobs, location: str) -> Path:
    """A new file's, until it is published there; its name says of which start of a server it is."""
    return blobs.staging(location) / f"{Path(location).name}.{secrets.token_hex(4)}{_STAGED}"


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Raises TryLater where the disk does not take it."""
    try:
        yield
    except OSError as error:
        raise TryLater(f"the file cannot be written ({error.strerror})", _FULL_S) from error


def too_large(max_bytes: int) -> TooLarge:
    """What is said of a file that is."""
    return TooLarge("file", f"more than {max_bytes:,} bytes", f"at most {max_bytes:,} bytes: send several files")
