"""The registry: versions, pushed whole or not at all, and what is known of them."""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.known_process import is_running
from twoshift.pointers import check_format
from twoshift.ports import Blobs
from twoshift.registry.aliases import Aliases
from twoshift.registry.artifact import Artifact
from twoshift.registry.cleaning import Cleaning
from twoshift.registry.damage import Damage
from twoshift.registry.facts import Evaluations, VersionProfiles
from twoshift.registry.layout import Layout, number_of
from twoshift.registry.names import ModelRef
from twoshift.registry.pushing import Push
from twoshift.registry.records import FORMAT, Version, VersionUse, read_version

__all__ = ["Registry"]


class Registry:
    """Models below a root, in a folder or a bucket; any thread and any machine may use it at the same time.

    Raises TryLater where nobody answers, InvalidInput where a name or an access must be changed, Broken for damage.
    """

    def __init__(self, root: str, blobs: Blobs, who: str | None = None) -> None:
        self.root = root.rstrip("/")
        self.blobs, self.layout = blobs, Layout(self.root)
        self._who = who
        self._cleaning = Cleaning(self.layout, blobs)
        self.damage = Damage(self.layout, blobs)
        self.profiles = VersionProfiles(self.layout, blobs)
        self.evaluations = Evaluations(self.layout, blobs, self.stamp)
        self.aliases = Aliases(self.layout, blobs, self.stamp)

    @property
    def exists(self) -> bool:
        """Whether anything was ever pushed there; raises Broken where a newer Twoshift keeps it."""
        mark = self.blobs.read(self.layout.mark)
        if mark is not None:
            check_format(mark, self.layout.mark, FORMAT)
        return mark is not None

    # Versions

    def push(
        self, name: str, artifact: Artifact, note: str = "", progress: Callable[[float], None] = lambda _: None
    ) -> Version:
        """A new version of the model. Nobody sees it before all of its files are there."""
        push = Push(self.layout, self.blobs, self.damage, self.stamp, name, artifact, note)
        return push.run(self._cleaning, progress)

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
            return self._aliased_version(ref.name, ref.alias)
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
            what = f"{location} contains the record of {found.ref} instead of {name}:{number}"
            raise Broken(f"{what}; restore this file from a backup")
        return found

    def read_all(self, refs: Iterable[ModelRef]) -> tuple[list[Version], dict[str, str]]:
        """These versions, and what is wrong with those that cannot be read; what was removed meanwhile is neither."""
        found, damaged = list[Version](), dict[str, str]()
        for ref in refs:
            try:
                found.append(self.version(ref.name, ref.version or 0))
            except Broken as error:
                damaged[str(ref)] = str(error)
            except NotFound:
                continue
        return found, damaged

    def refs(self, name: str | None = None) -> list[ModelRef]:
        """Every version, or those of a model, oldest first."""
        names = self.names() if name is None else [name]
        return [ModelRef(each, number) for each in names for number in self.versions(each)]

    def _aliased_version(self, name: str, alias: str) -> Version:
        number = self._aliased(name, alias)
        try:
            return self.version(name, number)
        except NotFound as error:
            known = _listed(self.versions(name)) or "none"
            points = f"this alias points to {name}:{number}, which was removed; versions of {name}: {known}"
            how = f"`twoshift models alias {name}@{alias} VERSION` sets another version"
            raise NotFound("model", f"{name}@{alias}", f"an alias of a version that exists: {points}; {how}") from error

    def _aliased(self, name: str, alias: str) -> int:
        found = self.aliases.current(name, alias)
        if found is None:
            if not self.versions(name):
                raise self._unknown_model(name)
            pointing, _ = self.aliases.pointing(name)
            known = ", ".join(
                f"{name}@{each}" for each in sorted(each for those in pointing.values() for each in those)
            )
            have = known or f"there is none yet; `twoshift models alias {name}@{alias} VERSION` creates one"
            raise NotFound("model", f"{name}@{alias}", f"an alias of {name}: {have}")
        return found.version

    def _unknown_model(self, name: str) -> NotFound:
        known = ", ".join(self.names()) or "there is none yet; `twoshift models push NAME SOURCE` adds one"
        return NotFound("model", name, f"a model in the registry {self.root}: {known}")

    # Aliases

    def alias(self, name: str, alias: str, number: int, note: str = "") -> None:
        """Let an alias point to a version, from now on; raises NotFound where there is none."""
        self.version(name, number)
        before = None
        with suppress(Broken):  # it is set again now
            before = self.aliases.current(name, alias)
        self.aliases.move(name, alias, number, note)
        if self.blobs.read(self.layout.version(name, number)) is None:  # removed at the same moment
            if before is not None:
                self.aliases.move(name, alias, before.version, f"{name}:{number} was removed")
            self.version(name, number)

    def delete_alias(self, name: str, alias: str, note: str = "") -> int:
        """Let an alias point to nothing; the version it pointed to. Its history stays. Raises NotFound."""
        before = self._aliased(name, alias)
        self.aliases.move(name, alias, 0, note)
        return before

    def rollback(self, name: str, alias: str, note: str = "") -> int:
        """Let an alias point to the version before, in one step; the version. Raises InvalidInput where none was."""
        self._aliased(name, alias)
        moves = self.aliases.history(name, alias)
        earlier = self.aliases.before(moves)
        if earlier is None:
            accepted = "an alias with an earlier version to return to; the history of this alias has no earlier version"
            raise InvalidInput("ALIAS", f"{name}@{alias}", accepted)
        try:
            self.version(name, earlier)
        except NotFound as error:
            accepted = f"an alias whose previous version still exists: {name}:{earlier} was removed"
            how = f"`twoshift models alias {name}@{alias} VERSION` sets another version"
            raise InvalidInput("ALIAS", f"{name}@{alias}", f"{accepted}; {how}") from error
        self.aliases.roll_back(name, alias, earlier, len(moves) + 1, note)
        return earlier

    # Removing and verifying

    def remove(self, name: str, number: int, force: bool = False) -> int:
        """Remove a version, a damaged one too, and the files that no other has; bytes that were freed.

        Raises InvalidInput where an alias points to it or, without `force`, somebody uses it.
        """
        ref = ModelRef(name, number)
        with suppress(Broken):
            self.version(name, number)
        if not force and (used := [use for use in self.uses(ref) if use.kind == "server"]):
            accepted = f"a version that no server uses: {used[0].where} uses this one; stop the server, or use --force"
            raise InvalidInput("VERSION", str(ref), accepted)
        created_at, created_by = self.stamp()
        mark = self.layout.removal(name, number)
        self.blobs.create(mark, msgspec.json.encode({"created_at": created_at, "created_by": created_by}))
        if refused := self._pointed_to(name, number):  # after the mark: who sets an alias later sees it gone
            self.blobs.delete(mark)
            raise InvalidInput("VERSION", str(ref), refused)
        self.blobs.delete(self.layout.version(name, number))
        for folder in (self.layout.profiles, self.layout.uses, self.layout.evaluations):
            for each in self.blobs.names(folder(name, number)):
                self.blobs.delete(f"{folder(name, number)}/{each}")
        return self._cleaning.clean(self._referenced)

    def _pointed_to(self, name: str, number: int) -> str:
        """What is wanted of a version instead, where an alias points to it or may; empty where none does."""
        pointing, damaged = self.aliases.pointing(name)
        if number in pointing:
            return f"a version without an alias: {name}@{pointing[number][0]} points to this version"
        return "".join(f"aliases that can be read: {what}" for what in [*damaged.values()][:1])

    def clean(self) -> tuple[int, int]:
        """Remove files that no version has, and what pushes that were killed have left; the bytes, the leftovers.

        Nothing but leftovers while a push is under way, or a record is damaged: nobody knows which files it has.
        """
        return self._cleaning.clean(self._referenced), self.blobs.sweep(self.root)

    def _referenced(self) -> set[str] | None:
        """The files that versions have, one that is removed at this moment has none; None where nobody can tell."""
        versions, damaged = self.read_all(self.refs())
        return None if damaged else {file.sha256 for version in versions for file in version.files}

    def damaged(self, version: Version, progress: Callable[[float], None] = lambda _: None) -> dict[str, str]:
        """The files of a version that are not what was pushed, with what is wrong."""
        return self.damage.of(version, progress)

    # What is known of a version

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

    def uses(self, version: Version | ModelRef) -> list[VersionUse]:
        """Jobs that have used a version, and servers that serve it as far as anybody can tell; oldest first."""
        folder = self.layout.uses(version.name, version.version or 0)
        found = list[VersionUse]()
        for each in self.blobs.names(folder):
            data = self.blobs.read(f"{folder}/{each}")
            with suppress(msgspec.DecodeError):
                found += [] if data is None else [msgspec.json.decode(data, type=VersionUse)]
        kept = (use for use in found if use.kind != "server" or _may_live(use))
        return sorted(kept, key=lambda use: use.created_at)

    def stamp(self) -> tuple[str, str]:
        """When and by whom."""
        return datetime.now(UTC).isoformat(timespec="seconds"), self._who or _whoami()


def _may_live(use: VersionUse) -> bool:
    """Whether the process may still be there: of another host nobody here can tell."""
    return use.host != socket.gethostname() or not use.process or is_running(use.process)


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
