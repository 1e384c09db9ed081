"""Aliases: words that point to a version, with every move they made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from twoshift.errors import Broken, NotFound, TryLater
from twoshift.ports import Blobs
from twoshift.registry.layout import Layout, number_of
from twoshift.registry.records import AliasMove

__all__ = ["Aliases"]

_SOON_S = 1.0


class Aliases:
    """The histories below a registry's models. The last line of one is where its alias points."""

    def __init__(self, layout: Layout, blobs: Blobs, stamp: Callable[[], tuple[str, str]]) -> None:
        self._layout, self._blobs, self._stamp = layout, blobs, stamp

    def of(self, name: str) -> list[str]:
        """The aliases that a model has or has had, sorted."""
        folder = self._layout.aliases(name)
        try:
            found = self._blobs.list(folder)
        except NotFound:
            return []
        return sorted({blob.location.removeprefix(f"{folder}/").partition("/")[0] for blob in found})

    def current(self, name: str, alias: str) -> AliasMove | None:
        """Where it points; None where there is no such alias, or none any longer."""
        last = self._last(name, alias)
        found = self._read(name, alias, last) if last else None
        return None if found is None or found.is_deletion else found

    def pointing(self, name: str) -> tuple[dict[int, list[str]], dict[str, str]]:
        """The aliases of a model by the versions that they point to, and what is wrong with the others."""
        found, damaged = dict[int, list[str]](), dict[str, str]()
        for alias in self.of(name):
            try:
                move = self.current(name, alias)
            except Broken as error:
                damaged[alias] = str(error)
                continue
            if move is not None:
                found.setdefault(move.version, []).append(alias)
        return found, damaged

    def history(self, name: str, alias: str) -> list[AliasMove]:
        """Every move, oldest first."""
        return [self._read(name, alias, number) for number in range(1, self._last(name, alias) + 1)]

    def before(self, moves: Sequence[AliasMove]) -> int | None:
        """The version that a rollback leads to: what it pointed to before, rollbacks gone with what they undid."""
        path = list[int]()
        for move in moves:
            if move.is_deletion:
                continue
            if move.is_rollback:
                del path[-1:]
            elif not path or path[-1] != move.version:
                path.append(move.version)
        return path[-2] if len(path) > 1 else None

    def move(self, name: str, alias: str, version: int, note: str) -> AliasMove:
        """Point to a version, or with 0 to none; of two at once both are in the history, and the later one holds."""
        created_at, created_by = self._stamp()
        while True:
            number = self._last(name, alias) + 1
            made = AliasMove(
                number=number, version=version, created_at=created_at, created_by=created_by, note=note,
                is_deletion=version == 0,
            )  # fmt: skip
            if self._written(name, alias, made):
                return made

    def roll_back(self, name: str, alias: str, version: int, number: int, note: str) -> AliasMove:
        """Point to the version before, as this line of the history; raises TryLater where somebody else has it now."""
        created_at, created_by = self._stamp()
        made = AliasMove(
            number=number, version=version, created_at=created_at, created_by=created_by, note=note, is_rollback=True
        )
        if not self._written(name, alias, made):
            raise TryLater(f"another process changed the alias {name}@{alias} at the same time", _SOON_S)
        return made

    def _written(self, name: str, alias: str, move: AliasMove) -> bool:
        return self._blobs.create(self._layout.move(name, alias, move.number), msgspec.json.encode(move))

    def _last(self, name: str, alias: str) -> int:
        found = (number_of(each) for each in self._blobs.names(self._layout.moves(name, alias)))
        return max((number for number in found if number is not None), default=0)

    def _read(self, name: str, alias: str, number: int) -> AliasMove:
        location = self._layout.move(name, alias, number)
        data = self._blobs.read(location)
        if data is None:
            raise Broken(f"{location} is missing from the history of {name}@{alias}; restore this file from a backup")
        try:
            return msgspec.json.decode(data, type=AliasMove)
        except (msgspec.DecodeError, ValueError) as error:
            how = f"`twoshift models alias {name}@{alias} VERSION` sets the alias again"
            raise Broken(f"{location} is damaged ({error}); {how}") from error
