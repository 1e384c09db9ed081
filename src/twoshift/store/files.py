"""Files in a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, and_, delete, exists, func, insert, or_, select, update

from twoshift.batch_ports import FileRecord, FileStatus
from twoshift.errors import InvalidInput, NotFound
from twoshift.store.claim import SqlClaim
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.tables import batches, files

__all__ = ["SqlFiles", "add_if_new"]

_MOST_UNWANTED = 1000  # at a time


class SqlFiles:
    """A FileStore; with a claim, of the server that has it."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, claim: SqlClaim | None = None
    ) -> None:
        self._database, self._clock = ClaimedDatabase(database, claim), clock

    def add_file(self, file: FileRecord) -> None:
        """Remember it."""
        self._database.changed(lambda connection: connection.execute(insert(files).values(_values(file))))

    def processed(self, file: FileRecord) -> None:
        """Its bytes are there."""
        values = {**_values(file), "status": str(FileStatus.PROCESSED)}
        self._database.changed(lambda made: made.execute(update(files).where(files.c.id == file.id).values(values)))

    def file(self, file_id: str, owner: str | None = None) -> FileRecord:
        """Raises NotFound."""
        found = self._database.found(select(files).where(_seen(file_id, owner)))
        if not found:
            raise _not_there("file", file_id)
        return _record(found[0])

    def list_files(
        self,
        owner: str | None,
        limit: int,
        after: str | None = None,
        ascending: bool = False,
        purpose: str | None = None,
    ) -> list[FileRecord]:
        """Those that are processed; `after` is the id of the last one that was seen. Raises NotFound."""
        number = files.c.number
        wanted = select(files).where(files.c.status == str(FileStatus.PROCESSED))
        if owner is not None:
            wanted = wanted.where(files.c.owner == owner)
        if purpose is not None:
            wanted = wanted.where(files.c.purpose == purpose)
        if after is not None:
            last = self._database.found(select(number).where(_seen(after, owner)))
            if not last:
                raise _not_there("after", after)
            wanted = wanted.where(number > last[0].number if ascending else number < last[0].number)
        wanted = wanted.order_by(number if ascending else number.desc()).limit(limit)
        return [_record(row) for row in self._database.found(wanted)]

    def remove_file(self, file_id: str, owner: str | None = None) -> None:
        """Nobody sees it any more; raises NotFound, and InvalidInput where a batch that is not over reads it."""

        def removed(connection: Connection) -> None:
            if connection.execute(select(files.c.id).where(_seen(file_id, owner)).with_for_update()).first() is None:
                raise _not_there("file", file_id)
            using = select(batches.c.id).where(batches.c.input_file_id == file_id, batches.c.ended_as.is_(None))
            if (batch_id := connection.execute(using).scalar()) is not None:
                accepted = f"a file that no running batch reads: cancel {batch_id} first, or wait until this batch ends"
                raise InvalidInput("file", file_id, accepted)
            gone = update(files).where(files.c.id == file_id).values(status=str(FileStatus.DELETING))
            connection.execute(gone)

        self._database.changed(removed)

    def forget_file(self, file_id: str) -> None:
        """Its bytes are gone, too."""
        self._database.changed(lambda connection: connection.execute(delete(files).where(files.c.id == file_id)))

    def unwanted_files(self, begun_before_unix_s: float, now_unix_s: float) -> list[str]:
        """Files whose bytes should go; those that expired are nobody's from now on."""
        needed = exists().where(batches.c.input_file_id == files.c.id, batches.c.ended_as.is_(None))
        expired = and_(files.c.expires_unix_s <= now_unix_s, files.c.status == str(FileStatus.PROCESSED), ~needed)
        begun = and_(files.c.status == str(FileStatus.UPLOADING), files.c.created_unix_s < begun_before_unix_s)
        unwanted = or_(files.c.status == str(FileStatus.DELETING), begun, expired)

        def marked(connection: Connection) -> list[str]:
            found = connection.execute(select(files.c.id).where(unwanted).limit(_MOST_UNWANTED).with_for_update())
            ids = [str(row.id) for row in found.all()]
            if ids:
                gone = update(files).where(files.c.id.in_(ids)).values(status=str(FileStatus.DELETING))
                connection.execute(gone)
            return ids

        return self._database.changed(marked)

    def stored_bytes(self, owner: str | None) -> int:
        """Of all files of an owner."""
        total = select(func.coalesce(func.sum(files.c.bytes), 0).label("total"))
        if owner is not None:
            total = total.where(files.c.owner == owner)
        return int(self._database.found(total)[0].total)


def add_if_new(connection: Connection, file: FileRecord) -> None:
    """Remember a file whose bytes are there, unless that is known."""
    if connection.execute(select(files.c.id).where(files.c.id == file.id)).first() is None:
        connection.execute(insert(files).values({**_values(file), "status": str(FileStatus.PROCESSED)}))


def _seen(file_id: str, owner: str | None) -> Any:
    found = (files.c.id == file_id) & (files.c.status == str(FileStatus.PROCESSED))
    return found if owner is None else found & (files.c.owner == owner)


def _not_there(field: str, given: str) -> NotFound:
    return NotFound(field, given, "the id of an existing file")


def _values(file: FileRecord) -> dict[str, Any]:
    return {
        "id": file.id, "owner": file.owner, "filename": file.filename, "purpose": file.purpose,
        "bytes": file.size_bytes, "sha256": file.sha256, "status": str(file.status),
        "created_unix_s": file.created_unix_s, "expires_unix_s": file.expires_unix_s,
    }  # fmt: skip


def _record(row: Any) -> FileRecord:
    return FileRecord(
        id=row.id,
        owner=row.owner,
        created_unix_s=row.created_unix_s,
        filename=row.filename,
        purpose=row.purpose,
        size_bytes=row.bytes,
        sha256=row.sha256,
        status=FileStatus(row.status),
        expires_unix_s=row.expires_unix_s,
    )
