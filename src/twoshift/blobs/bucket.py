"""Objects in a bucket of S3, Google Cloud Storage or Azure, published with conditional puts."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from twoshift.blobs.bucket_connection import BucketConnection, BucketSettings
from twoshift.blobs.bucket_errors import InFlight
from twoshift.blobs.bucket_reader import opened
from twoshift.errors import Broken, InvalidInput, NotFound, TooLarge
from twoshift.ports import Blob

__all__ = ["BucketBlobs"]

_READ_AHEAD_THREADS = 8
_MOST_PUT_BYTES = 5 * 1000**3  # S3 and Azure take no more in one put, and obstore makes no others conditional
_PART_BYTES = 16 << 20  # of a large put
_MOST_PARTS = 9_000  # S3 takes 10,000
_PARTS_AT_ONCE = 8
_STAGING = "twoshift-staging-"  # and the process's number
_MARK = "twoshiftput"  # metadata that tells our own object from another's with the same bytes; Azure takes no hyphen


class BucketBlobs:
    """Objects as files; a slash in a key is a folder."""

    def __init__(self, settings: BucketSettings) -> None:
        self._connection = BucketConnection(settings)
        self._scheme = f"{settings.scheme}://"
        self._obstore = self._connection.obstore
        self._threads = ThreadPoolExecutor(_READ_AHEAD_THREADS, thread_name_prefix=f"{settings.scheme}-read-ahead")
        self._staging: Path | None = None

    def stat(self, location: str) -> Blob | None:
        """The file of that name; None where there is none."""
        bucket, key = self._split(location)
        found = self._head(location, bucket, key) if _is_file(key) else None
        return None if found is None else self._blob(bucket, found)

    def list(self, prefix: str) -> list[Blob]:
        """Every file below a folder, sorted by location; raises NotFound where there is nothing."""
        bucket, folder = self._split_folder(prefix)
        store = self._connection.store(bucket)
        pages = self._connection.call(prefix, lambda: self._obstore.list(store, folder, chunk_size=1000).collect())
        found = [self._blob(bucket, meta) for meta in pages if meta["path"] != folder and self._is_real(bucket, meta)]
        if not found:
            raise NotFound("folder", prefix, f"a folder with at least one file at {self._connection.endpoint}")
        return sorted(found, key=lambda blob: blob.location)

    def names(self, prefix: str) -> set[str]:
        """The names of the files right in a folder; none where there is no folder."""
        bucket, folder = self._split_folder(prefix)
        store = self._connection.store(bucket)
        found = self._connection.call(prefix, lambda: self._obstore.list_with_delimiter(store, folder))
        return {meta["path"].rpartition("/")[2] for meta in found["objects"] if meta["path"] != folder}

    def open(self, location: str) -> BinaryIO:
        """The file, buffered and seekable; raises InvalidInput where there is none."""
        bucket, key = self._split(location)
        meta = self._head(location, bucket, key) if _is_file(key) else None
        if meta is None:
            raise InvalidInput("location", location, "a file that exists")
        return opened(
            lambda start, stop: self._range(location, meta["e_tag"], start, stop), meta["size"], self._threads
        )

    def read(self, location: str) -> bytes | None:
        """A small file; None where there is none."""
        bucket, key = self._split(location)
        store = self._connection.store(bucket)
        try:
            return self._connection.call(location, lambda: bytes(self._obstore.get(store, key).bytes()))
        except FileNotFoundError:
            return None

    def write(self, location: str, data: bytes) -> None:
        """Put a small file there, or replace it: a reader sees the old or the new one, whole."""
        bucket, key = self._split_file(location)
        store = self._connection.store(bucket, len(data))
        self._connection.call(location, lambda: self._obstore.put(store, key, data, use_multipart=False))

    def create(self, location: str, data: bytes) -> bool:
        """Put a small file there if there is none; whether it did."""
        return self._put_if_absent(location, data, len(data))

    def staging(self, location: str) -> Path:
        """The local folder in which a file is written that will be published at that location."""
        if self._staging is None:
            _remove_abandoned()
            folder = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{os.getpid()}-"))
            weakref.finalize(self, _remove_own, folder, os.getpid())
            self._staging = folder
        return self._staging

    def publish(self, staged: Path, location: str) -> bool:
        """Put a staged file there, whole, if there is none; whether it did. The staged file is then gone."""
        won = self._put_if_absent(location, staged, staged.stat().st_size)
        staged.unlink(missing_ok=True)
        return won

    def write_large(self, location: str, chunks: Callable[[], Iterator[bytes]], size_bytes: int) -> None:
        """Put a file of any size there, or replace it, whole; nothing where the chunks raise."""
        bucket, key = self._split_file(location)
        part_bytes = max(_PART_BYTES, -(-size_bytes // _MOST_PARTS))
        store = self._connection.store(bucket, part_bytes)

        def put() -> None:
            several = size_bytes > part_bytes
            self._obstore.put(
                store, key, chunks() if several else b"".join(chunks()), use_multipart=several,
                chunk_size=part_bytes, max_concurrency=_PARTS_AT_ONCE,
            )  # fmt: skip

        try:
            self._connection.call(location, put)
        except FileNotFoundError as error:
            raise Broken(
                f"{location} cannot be written, because its bucket does not exist at {self._connection.endpoint}: "
                "create the bucket, or correct its name"
            ) from error

    def write_unnamed(self, folder: str, chunks: Iterator[bytes], location: Callable[[], str | None]) -> bool:
        """False: an upload begins with its name."""
        return False

    def delete(self, location: str) -> None:
        """Remove the file, if there is one."""
        bucket, key = self._split_file(location)
        store = self._connection.store(bucket)
        try:
            self._connection.call(location, lambda: self._obstore.delete(store, key))
        except FileNotFoundError:
            return

    def sweep(self, prefix: str) -> int:
        """Nothing: what was begun is not seen here, and goes by the bucket's own lifecycle rule."""
        return 0

    def _put_if_absent(self, location: str, data: bytes | Path, size_bytes: int) -> bool:
        if size_bytes > _MOST_PUT_BYTES:
            raise TooLarge(
                "part",
                f"{location} of {size_bytes:,} bytes",
                "at most 5 GB per file: use smaller shards (--shard-rows)",
            )
        bucket, key = self._split_file(location)
        store = self._connection.store(bucket, size_bytes)
        mark = uuid.uuid4().hex
        taken = (self._obstore.exceptions.AlreadyExistsError, self._obstore.exceptions.PreconditionError)

        def put() -> bool:
            try:
                self._obstore.put(store, key, data, mode="create", attributes={_MARK: mark})
            except taken:  # perhaps by ourselves: the answer to an earlier try may have been lost
                return self._mark_of(bucket, key) == mark
            return True

        try:
            return self._connection.call(location, put)
        except FileNotFoundError as error:
            raise Broken(
                f"{location} cannot be written, because its bucket does not exist at {self._connection.endpoint}: "
                "create the bucket, or correct its name"
            ) from error

    def _mark_of(self, bucket: str, key: str) -> str | None:
        """Who put what lies there; raises InFlight where nothing does: then it was a conflict, not an object."""
        try:
            found = self._obstore.get(self._connection.store(bucket), key, options={"head": True})
        except FileNotFoundError as error:
            raise InFlight from error
        return found.attributes.get(_MARK)

    def _head(self, location: str, bucket: str, key: str) -> Any | None:
        store = self._connection.store(bucket)
        try:
            return self._connection.call(location, lambda: self._obstore.head(store, key))
        except FileNotFoundError:
            return None

    def _is_real(self, bucket: str, meta: Any) -> bool:
        """Whether it is a file: `folder/`, which consoles make, is listed as an empty `folder`."""
        return meta["size"] > 0 or self.stat(f"{self._scheme}{bucket}/{meta['path']}") is not None

    def _range(self, location: str, e_tag: str | None, start: int, stop: int) -> memoryview:
        bucket, key = self._split(location)
        store = self._connection.store(bucket)
        options = {"range": (start, stop), **({} if e_tag is None else {"if_match": e_tag})}
        try:
            data = self._connection.call(
                location, lambda: memoryview(self._obstore.get(store, key, options=options).bytes())
            )
        except FileNotFoundError as error:
            raise Broken(f"{location} was deleted while it was being read") from error
        if len(data) != stop - start:
            endpoint = self._connection.endpoint
            raise Broken(
                f"{endpoint} returned {len(data):,} bytes of {location} instead of {stop - start:,}; try again"
            )
        return data

    def _split(self, location: str) -> tuple[str, str]:
        bucket, _, key = location.removeprefix(self._scheme).partition("/")
        if not location.startswith(self._scheme) or not bucket:
            raise InvalidInput("location", location, f"{self._scheme}bucket/key")
        return bucket, key

    def _split_folder(self, prefix: str) -> tuple[str, str | None]:
        bucket, key = self._split(prefix)
        return bucket, key.rstrip("/") or None

    def _split_file(self, location: str) -> tuple[str, str]:
        bucket, key = self._split(location)
        if not _is_file(key):
            raise InvalidInput("location", location, f"the name of a file, {self._scheme}bucket/key")
        return bucket, key

    def _blob(self, bucket: str, meta: Any) -> Blob:
        written = meta["last_modified"].isoformat()
        tag = (meta["e_tag"] or "").strip('"')  # a listing of Azure's has it without
        seen = f'etag "{tag}"' if tag else f"modified {written}"
        written_s = meta["last_modified"].timestamp()
        location = f"{self._scheme}{bucket}/{meta['path']}"
        return Blob(location, meta["size"], f"{meta['size']} bytes, {seen}", written, written_s)


def _is_file(key: str) -> bool:
    return bool(key) and not key.endswith("/")


def _remove_abandoned() -> None:
    """What processes that were killed have left; a number that is in use again keeps a folder a little longer."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_STAGING}*"):
        owner = folder.name.removeprefix(_STAGING).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has the same finalizer
        shutil.rmtree(folder, ignore_errors=True)
