"""Versions on this machine: whole and compared with their checksums, within a size limit."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from twoshift.decodable import decodable
from twoshift.durable import sync_directory
from twoshift.errors import Broken, InvalidInput
from twoshift.registry.records import Version, VersionFile, read_version
from twoshift.registry.transfer import Bytes

__all__ = ["ModelCache"]

_AT_ONCE = 4
_READ_ONLY = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
_VERIFIED, _USED, _FILES = "verified.json", "used", "files"
Receive = Callable[[VersionFile, Path, Bytes], None]  # writes the file, or raises


@decodable
class _Verified(msgspec.Struct, frozen=True):
    """The files of a folder as they were when their checksums were right."""

    files: dict[str, tuple[int, int, str]]  # path -> size, mtime in ns, sha256


class ModelCache:
    """A folder for each content; what lies there was received whole. Several processes may use it."""

    def __init__(self, root: Path, limit_bytes: float) -> None:
        self._root, self._limit = root, limit_bytes
        self._versions, self._incoming = root / "versions", root / "incoming"
        self._held: dict[str, int] = {}  # locks on what this process uses, by their descriptors
        weakref.finalize(self, _let_go, self._held)

    def folder(self, version: Version) -> Path | None:
        """Where the version's files lie, if they do; it is not evicted while this process runs."""
        name = _hex(version.checksum)
        if not self._is_whole(self._versions / name, version):
            return None
        self._hold(name)
        if not self._is_whole(self._versions / name, version):  # evicted before it was held
            return None
        with suppress(OSError):  # a cache that cannot be written is one, too
            (self._versions / name / _USED).touch()
        return self._versions / name / _FILES

    def fetch(self, version: Version, receive: Receive, progress: Callable[[float], None]) -> Path:
        """The version's files, received if they are not here; raises InvalidInput where they do not fit, Broken."""
        name = _hex(version.checksum)
        with self._writable(), self._locked(f"{name}.fetch"):
            if (found := self.folder(version)) is not None:  # received by another process meanwhile
                return found
            self._sweep()
            self._make_room(version)
            with self._incoming_folder() as incoming:
                self._receive(version, incoming, receive, progress)
                self._replace(incoming, self._versions / name)
        found = self.folder(version)
        if found is None:
            raise Broken(f"{self._versions / name} was changed while {version.ref} was downloaded; try again")
        return found

    def damaged(self, version: Version) -> dict[str, str] | None:
        """The files that are not what was pushed, read to the end; None where the version is not here."""
        folder = self._versions / _hex(version.checksum) / _FILES
        if not folder.is_dir():
            return None
        found = dict[str, str]()
        for file in version.files:
            try:
                with (folder / file.path).open("rb") as opened:
                    if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                        found[file.path] = f"{folder / file.path} has another checksum than the pushed file"
            except OSError as error:
                found[file.path] = f"{folder / file.path}: {error.strerror}"
        return found

    def forget(self, version: Version) -> None:
        """Remove a version from this machine; who has it open keeps it."""
        self._discard(self._versions / _hex(version.checksum))

    # What a name meant when the registry last answered

    def remember(self, registry: str, word: str, version: Version) -> None:
        """For starts at which the registry does not answer."""
        path = self._memory(registry, word)
        with suppress(OSError):  # a cache that cannot be written remembers nothing
            data = msgspec.json.encode(version)
            if path.is_file() and path.read_bytes() == data:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            written = path.with_name(f".{uuid.uuid4().hex}")
            written.write_bytes(data)
            written.replace(path)

    def recall(self, registry: str, word: str) -> Version | None:
        """What the word meant; None where nobody knows."""
        path = self._memory(registry, word)
        try:
            return read_version(path.read_bytes(), str(path))
        except (OSError, Broken):
            return None

    def _memory(self, registry: str, word: str) -> Path:
        return self._root / "names" / hashlib.sha256(registry.encode()).hexdigest()[:16] / f"{word}.json"

    # Receiving

    def _receive(self, version: Version, incoming: Path, receive: Receive, progress: Callable[[float], None]) -> None:
        seen, known = Bytes(version.size_bytes, progress), self._known_files()
        folder = incoming / _FILES
        folder.mkdir()

        def one(file: VersionFile) -> None:
            target = folder / file.path
            if not _linked(known.get(file.sha256), target):
                receive(file, target, seen)
                target.chmod(_READ_ONLY)
            else:
                seen(file.size_bytes)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for done in [threads.submit(one, file) for file in version.files]:
                done.result()
        found = {file.path: (*_seen(folder / file.path), file.sha256) for file in version.files}
        with (incoming / _VERIFIED).open("wb") as written:
            written.write(msgspec.json.encode(_Verified(found)))
            written.flush()
            os.fsync(written.fileno())
        sync_directory(incoming)

    def _known_files(self) -> dict[str, Path]:
        """Files of other versions, by their content: most of a new version is often the same."""
        found = dict[str, Path]()
        for folder in self._folders():
            for path, (size, mtime, sha256) in (_read_verified(folder) or _Verified({})).files.items():
                with suppress(OSError):
                    if _seen(folder / _FILES / path) == (size, mtime):
                        found[sha256] = folder / _FILES / path
        return found

    def _replace(self, incoming: Path, folder: Path) -> None:
        if folder.exists():
            self._discard(folder)
        self._versions.mkdir(parents=True, exist_ok=True)
        incoming.rename(folder)
        sync_directory(self._versions)

    def _discard(self, folder: Path) -> None:
        """Gone at once for whoever looks; its files a little later."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        gone = self._incoming / uuid.uuid4().hex
        with suppress(FileNotFoundError):
            folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    @contextmanager
    def _incoming_folder(self) -> Iterator[Path]:
        name = uuid.uuid4().hex
        with self._locked(f"{name}.incoming"):
            folder = self._incoming / name
            folder.mkdir(parents=True)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                (self._root / "locks" / f"{name}.incoming").unlink(missing_ok=True)

    def _sweep(self) -> None:
        """What processes that were killed have left."""
        for folder in self._incoming.iterdir() if self._incoming.is_dir() else ():
            with self._try_lock(f"{folder.name}.incoming") as free:
                if free:
                    shutil.rmtree(folder, ignore_errors=True)
                    (self._root / "locks" / f"{folder.name}.incoming").unlink(missing_ok=True)

    # Room

    def _make_room(self, version: Version) -> None:
        """Evict what was not used for longest; raises InvalidInput where that is not enough."""
        sizes = {folder: _size(folder) for folder in self._folders()}
        over = sum(sizes.values()) + version.size_bytes - self._limit
        for folder in sorted(sizes, key=_last_use):
            if over <= 0:
                return
            with self._try_lock(f"{folder.name}.used") as free:
                if free:
                    self._discard(folder)
                    over -= sizes[folder]
        if over > 0:
            used = sum(_size(folder) for folder in self._folders())
            needs = f"{version.ref} has {version.size_bytes:,} bytes, and the cached models in use have {used:,} bytes"
            accepted = f"at least {version.size_bytes + used:,} bytes: {needs}"
            raise InvalidInput("TWOSHIFT_MODEL_CACHE", f"{self._limit:.0f}", accepted)

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self._versions.iterdir() if path.is_dir()]
        except OSError:
            return []

    def _is_whole(self, folder: Path, version: Version) -> bool:
        """Whether every file is as it was when its checksum was right."""
        verified = _read_verified(folder)
        if verified is None or verified.files.keys() != {file.path for file in version.files}:
            return False
        with suppress(OSError):
            return all(
                _seen(folder / _FILES / path) == (size, mtime) for path, (size, mtime, _) in verified.files.items()
            )
        return False

    # Locks

    def _hold(self, name: str) -> None:
        if name not in self._held:
            with suppress(OSError), self._lock_file(f"{name}.used") as opened:
                fcntl.flock(opened, fcntl.LOCK_SH)
                self._held[name] = os.dup(opened.fileno())

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with self._lock_file(name) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _try_lock(self, name: str) -> Iterator[bool]:
        """Whether nobody else has it."""
        with self._lock_file(name) as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _lock_file(self, name: str) -> IO[bytes]:
        folder = self._root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("ab")

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            accepted = f"a writable folder ({error.strerror or error}); TWOSHIFT_HOME sets the parent folder"
            raise InvalidInput("model cache", str(self._root), accepted) from error


def _let_go(held: dict[str, int]) -> None:
    for each in held.values():
        with suppress(OSError):
            os.close(each)


def _hex(checksum: str) -> str:
    return checksum.rpartition(":")[2]


def _seen(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _size(folder: Path) -> int:
    verified = _read_verified(folder)
    return 0 if verified is None else sum(size for size, _, _ in verified.files.values())


def _last_use(folder: Path) -> float:
    for name in (_USED, _VERIFIED):
        with suppress(OSError):
            return (folder / name).stat().st_mtime
    return 0.0


def _read_verified(folder: Path) -> _Verified | None:
    try:
        return msgspec.json.decode((folder / _VERIFIED).read_bytes(), type=_Verified)
    except (OSError, msgspec.DecodeError):
        return None


def _linked(known: Path | None, target: Path) -> bool:
    """Whether the file is there now, as another name of one that is here already."""
    if known is None:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(known, target)
    except OSError:  # evicted meanwhile, or a filesystem without hard links
        return False
    return True
