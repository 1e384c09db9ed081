"""The registry: versions, pushed whole or not at all, and what is known of them."""

from __future__ import annotations

import getpass
import itertools
import os
import socket
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.ports import Blobs
from twoshift.registry.aliases import Aliases
from twoshift.registry.artifact import Artifact, chunks_of, hashed
from twoshift.registry.cleaning import Cleaning
from twoshift.registry.layout import Layout, number_of
from twoshift.registry.names import ModelRef, checked_model_name
from twoshift.registry.records import FORMAT, Version, VersionFile, VersionUse, content_checksum, read_version
from twoshift.registry.transfer import Bytes, damage_of

__all__ = ["Registry"]

_AT_ONCE = 4  # files that are sent or read at the same time


class Registry:
    """Models below a root, in a folder or a bucket; any thread and any machine may use it at the same time.

    Raises TryLater where nobody answers, InvalidInput where a name or an access must be changed, Broken for damage.
    """

    def __init__(self, root: str, blobs: Blobs, who: str | None = None) -> None:
        self.root = root.rstrip("/")
        self.blobs, self.layout = blobs, Layout(self.root)
        self._who = who
        self._cleaning = Cleaning(self.layout, blobs)
        self.aliases = Aliases(self.layout, blobs, self.stamp)

    @property
    def exists(self) -> bool:
        """Whether anything was ever pushed there."""
        return self.blobs.read(self.layout.mark) is not None

    # Versions

    def push(
        self, name: str, artifact: Artifact, note: str = "", progress: Callable[[float], None] = lambda _: None
    ) -> Version:
        """A new version of the model. Nobody sees it before all of its files are there."""
        checked_model_name(name)
        self.blobs.create(self.layout.mark, msgspec.json.encode({"format": FORMAT, "id": uuid.uuid4().hex}))
        sent = Bytes(2 * artifact.size_bytes, progress)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            files = tuple(threads.map(lambda file: hashed(file, sent), artifact.files))
        sources = {found.sha256: file.source for file, found in zip(artifact.files, files, strict=True)}
        with self._cleaning.kept_off(), ThreadPoolExecutor(_AT_ONCE) as threads:
            distinct = {file.sha256: file for file in files}.values()
            for done in [threads.submit(self._send, file, sources[file.sha256], sent) for file in distinct]:
                done.result()
            return self._committed(name, artifact, files, note)

    def _send(self, file: VersionFile, source: Path, sent: Bytes) -> None:
        location = self.layout.blob(file.sha256)
        there = self.blobs.stat(location)
        if there is not None and there.size_bytes == file.size_bytes:  # of another version
            sent(file.size_bytes)
            return
        self.blobs.write_large(location, lambda: chunks_of(source, file, sent), file.size_bytes)

    def _committed(self, name: str, artifact: Artifact, files: tuple[VersionFile, ...], note: str) -> Version:
        created_at, created_by = self.stamp()
        for _ in itertools.count():
            known = self._numbers(name)
            number, before = max(known, default=0) + 1, max(self.versions(name), default=None)
            version = Version(
                format=FORMAT, name=name, version=number, checksum=content_checksum(files), files=files,
                entry=artifact.entry, source=artifact.source, created_at=created_at, created_by=created_by,
                parent=artifact.parent or (f"{name}:{before}" if before else None), note=note, is_llm=artifact.is_llm,
                needs_trust=artifact.needs_trust, runtime=artifact.runtime, outputs=artifact.outputs,
                model_checksum=artifact.model_checksum,
            )  # fmt: skip
            if self.blobs.create(self.layout.version(name, number), msgspec.json.encode(version)):
                return version
        raise AssertionError

    def _numbers(self, name: str) -> set[int]:
        """All that were ever used; the versions first: one that goes is among the removed by then."""
        listed = [self.blobs.names(self.layout.versions(name)), self.blobs.names(self.layout.removals(name))]
        return {number for names in listed for each in names if (number := number_of(each)) is not None}

    def versions(self, name: str) -> list[int]:
        """The versions of a model, oldest first; none where there is no such model."""
        found = (number_of(each) for each in self.blobs.names(self.layout.versions(name)))
        return sorted(number for number in found if number is not None)

    def names(self) -> list[str]:
        """The models that have a version, sorted."""
        try:
            found = self.blobs.list(self.layout.models)
        except NotFound:
            return []
        paths = [blob.location.removeprefix(f"{self.layout.models}/").split("/") for blob in found]
        return sorted({path[0] for path in paths if len(path) == 3 and path[1] == "versions"})

    def find(self, ref: ModelRef) -> Version:
        """The version that is meant; raises NotFound with the known ones."""
        if ref.alias is not None:
            return self.version(ref.name, self._aliased(ref.name, ref.alias))
        if ref.version is not None:
            return self.version(ref.name, ref.version)
        known = self.versions(ref.name)
        if not known:
            raise self._unknown_model(ref.name)
        return self.version(ref.name, known[-1])

    def version(self, name: str, number: int) -> Version:
        """That version; raises NotFound with the known ones."""
        location = self.layout.version(name, number)
        data = self.blobs.read(location)
        if data is None:
            known = self.versions(name)
            if not known:
                raise self._unknown_model(name)
            raise NotFound("model", f"{name}:{number}", f"a version of {name}: {_listed(known)}")
        found = read_version(data, location)
        if (found.name, found.version) != (name, number):
            raise Broken(f"{location} is the record of {found.ref}; it was copied there")
        return found

    def _aliased(self, name: str, alias: str) -> int:
        found = self.aliases.current(name, alias)
        if found is None:
            if not self.versions(name):
                raise self._unknown_model(name)
            known = ", ".join(f"{name}@{each}" for each in self.aliases.of(name))
            have = known or f"none yet; `twoshift models alias {name}@{alias} VERSION` makes one"
            raise NotFound("model", f"{name}@{alias}", f"an alias of {name}: {have}")
        return found.version

    def _unknown_model(self, name: str) -> NotFound:
        known = ", ".join(self.names()) or "none yet; `twoshift models push NAME SOURCE` adds one"
        return NotFound("model", name, f"a model in the registry {self.root}: {known}")

    # Aliases

    def alias(self, name: str, alias: str, number: int, note: str = "") -> None:
        """Let an alias point to a version, from now on; raises NotFound where there is none."""
        self.version(name, number)
        before = self.aliases.current(name, alias)
        self.aliases.move(name, alias, number, note)
        if self.blobs.read(self.layout.version(name, number)) is None:  # removed at the same moment
            if before is not None:
                self.aliases.move(name, alias, before.version, f"{name}:{number} was removed")
            self.version(name, number)

    def rollback(self, name: str, alias: str, note: str = "") -> int:
        """Let an alias point to the version before, in one step; the version. Raises InvalidInput where none was."""
        self._aliased(name, alias)
        moves = self.aliases.history(name, alias)
        earlier = self.aliases.before(moves)
        if earlier is None:
            raise InvalidInput("ALIAS", f"{name}@{alias}", "an alias that pointed to another version before")
        try:
            self.version(name, earlier)
        except NotFound as error:
            accepted = f"an earlier version that still exists; use `twoshift models alias {name}@{alias} VERSION`"
            raise InvalidInput("ALIAS", f"{name}@{alias} (before: version {earlier})", accepted) from error
        self.aliases.roll_back(name, alias, earlier, len(moves) + 1, note)
        return earlier

    # Removing and verifying

    def remove(self, name: str, number: int, force: bool = False) -> int:
        """Remove a version, and the files that no other has; bytes that were freed.

        Raises InvalidInput where an alias points to it or, without `force`, somebody uses it.
        """
        version = self.version(name, number)
        if not force and (used := [use for use in self.uses(version) if use.kind == "server" and _may_live(use)]):
            accepted = f"a version that no server uses: {used[0].where} does; stop it, or use --force"
            raise InvalidInput("VERSION", version.ref, accepted)
        created_at, created_by = self.stamp()
        mark = self.layout.removal(name, number)
        self.blobs.create(mark, msgspec.json.encode({"created_at": created_at, "created_by": created_by}))
        pointing = [each for each in self.aliases.of(name) if self._points_to(name, each, number)]
        if pointing:  # after the mark: who sets an alias later sees it gone
            self.blobs.delete(mark)
            accepted = f"a version without an alias: {name}@{pointing[0]} points to it"
            raise InvalidInput("VERSION", version.ref, accepted)
        self.blobs.delete(self.layout.version(name, number))
        for folder in (self.layout.profiles(name, number), self.layout.uses(name, number)):
            for each in self.blobs.names(folder):
                self.blobs.delete(f"{folder}/{each}")
        return self._cleaning.clean(self._referenced)

    def _points_to(self, name: str, alias: str, number: int) -> bool:
        found = self.aliases.current(name, alias)
        return found is not None and found.version == number

    def _referenced(self) -> set[str]:
        """The files that versions have; one that is removed at this moment has none."""
        found = set[str]()
        for name in self.names():
            for number in self.versions(name):
                with suppress(NotFound):
                    found |= {file.sha256 for file in self.version(name, number).files}
        return found

    def damaged(self, version: Version, progress: Callable[[float], None] = lambda _: None) -> dict[str, str]:
        """The files of a version that are not what was pushed, with what is wrong."""
        seen = Bytes(version.size_bytes, progress)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = threads.map(lambda file: damage_of(self.blobs, self.layout.blob(file.sha256), file, seen),
                                version.files)  # fmt: skip
            return {file.path: what for file, what in zip(version.files, found, strict=True) if what}

    # What is known of a version

    def profile_names(self, version: Version) -> list[str]:
        """The profiles of a version, by the names of their devices."""
        folder = self.layout.profiles(version.name, version.version)
        return sorted(each.removesuffix(".json") for each in self.blobs.names(folder))

    def profile(self, ref: ModelRef, key: str) -> bytes | None:
        """What was measured of a version on a device; None where nothing was."""
        return self.blobs.read(self._profile(ref, key))

    def keep_profile(self, ref: ModelRef, key: str, data: bytes) -> bool:
        """For other machines of the same kind; the first that is kept stays. Whether it is this one."""
        if ref.version is None or self.blobs.read(self.layout.version(ref.name, ref.version)) is None:
            return False
        return self.blobs.create(self._profile(ref, key), data)

    def _profile(self, ref: ModelRef, key: str) -> str:
        return f"{self.layout.profiles(ref.name, ref.version or 0)}/{key}.json"

    def used_by(self, ref: ModelRef, kind: str, where: str) -> str:
        """Write down who uses a version; the location, to delete it by."""
        created_at, created_by = self.stamp()
        host, process = socket.gethostname(), os.getpid()
        use = VersionUse(
            kind=kind, where=where, host=host, process=process, created_at=created_at, created_by=created_by
        )
        named = uuid.uuid5(uuid.NAMESPACE_URL, f"{kind} {where}").hex  # again and again the same one
        location = f"{self.layout.uses(ref.name, ref.version or 0)}/{kind}-{named}.json"
        self.blobs.write(location, msgspec.json.encode(use))
        return location

    def uses(self, version: Version) -> list[VersionUse]:
        """Who uses a version or has used it, oldest first."""
        folder = self.layout.uses(version.name, version.version)
        found = list[VersionUse]()
        for each in self.blobs.names(folder):
            data = self.blobs.read(f"{folder}/{each}")
            with suppress(msgspec.DecodeError):
                found += [] if data is None else [msgspec.json.decode(data, type=VersionUse)]
        return sorted(found, key=lambda use: use.created_at)

    def stamp(self) -> tuple[str, str]:
        """When and by whom."""
        return datetime.now(UTC).isoformat(timespec="seconds"), self._who or _whoami()


def _may_live(use: VersionUse) -> bool:
    """Whether the process may still be there: of another host nobody here can tell."""
    if use.host != socket.gethostname() or not use.process:
        return True
    try:
        os.kill(use.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
