"""Where things lie below the root of a registry."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Layout", "number_of"]

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Layout:
    """Locations of a registry, by its root."""

    root: str

    @property
    def mark(self) -> str:
        """Says that this is a registry."""
        return f"{self.root}/registry.json"

    @property
    def models(self) -> str:
        """All records of models."""
        return f"{self.root}/models"

    @property
    def blobs(self) -> str:
        """All files, by their content."""
        return f"{self.root}/blobs"

    @property
    def pushes(self) -> str:
        """Pushes that are under way."""
        return f"{self.root}/pushes"

    @property
    def cleaners(self) -> str:
        """Who deletes files without a version."""
        return f"{self.root}/cleaners"

    @property
    def damages(self) -> str:
        """Files that were found damaged."""
        return f"{self.root}/damaged"

    def damage(self, sha256: str) -> str:
        """A file that was found damaged."""
        return f"{self.damages}/{sha256}"

    def blob(self, sha256: str) -> str:
        """A file by its content."""
        return f"{self.blobs}/{sha256[:2]}/{sha256}"

    def versions(self, name: str) -> str:
        """The versions of a model."""
        return f"{self.models}/{name}/versions"

    def version(self, name: str, number: int) -> str:
        """A version's record."""
        return f"{self.versions(name)}/{_numbered(number)}"

    def removals(self, name: str) -> str:
        """The versions that were: a number is never used again."""
        return f"{self.models}/{name}/removed"

    def removal(self, name: str, number: int) -> str:
        """A version that was, or is about to go."""
        return f"{self.removals(name)}/{_numbered(number)}"

    def aliases(self, name: str) -> str:
        """The aliases of a model."""
        return f"{self.models}/{name}/aliases"

    def moves(self, name: str, alias: str) -> str:
        """The history of an alias."""
        return f"{self.aliases(name)}/{alias}"

    def move(self, name: str, alias: str, number: int) -> str:
        """A line in the history of an alias."""
        return f"{self.moves(name, alias)}/{_numbered(number)}"

    def profiles(self, name: str, number: int) -> str:
        """What was measured of a version."""
        return f"{self.models}/{name}/profiles/{number:0{_DIGITS}d}"

    def evaluations(self, name: str, number: int) -> str:
        """How a version's answers were judged."""
        return f"{self.models}/{name}/evaluations/{number:0{_DIGITS}d}"

    def uses(self, name: str, number: int) -> str:
        """Who uses a version."""
        return f"{self.models}/{name}/uses/{number:0{_DIGITS}d}"


def number_of(file: str) -> int | None:
    """The number in a record's file name; None for a file that is none."""
    stem, _, suffix = file.rpartition("/")[2].partition(".")
    return int(stem) if suffix == "json" and len(stem) == _DIGITS and stem.isdigit() else None


def _numbered(number: int) -> str:
    return f"{number:0{_DIGITS}d}.json"
