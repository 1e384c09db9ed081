"""An index as it lies somewhere: generations side by side, and numbered pointers of which the last one counts.

`INDEX/generations/NAME/index.json` commits a generation once its files are there; `INDEX/current-000007.json` makes it
the one that is searched. Both are created only if their name is free, on disks and in buckets alike: a generation is
switched to once, and a job that is resumed late does not switch back to its own.
"""

from __future__ import annotations

import msgspec

from twoshift.decodable import decodable
from twoshift.pointers import add_pointer, current_pointer, delete_replaced, pointers_newest_first, read_manifest
from twoshift.ports import Blobs

__all__ = [
    "Generation",
    "Pointer",
    "current",
    "files_location",
    "is_switched",
    "manifest_location",
    "prune",
    "read_generation",
    "switch",
]

_FORMAT = 1


@decodable
class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """An index of one job."""

    name: str
    library: str
    metric: str
    dims: int
    rows: int  # vectors
    left_out: dict[str, int]  # rows of the job that have none here, by why
    key: str | None  # the column; None: the row number in the output
    model: str
    checksum: str  # of its weights: queries are embedded by the same
    precision: str
    output: str  # of the job
    files: dict[str, int]  # their names, below the generation, and sizes
    recall: dict[int, float]  # recall@10 by effort
    sampled: int  # vectors that it was measured on
    build_s: float
    memory_bytes: int  # that building took, about
    format: int = _FORMAT

    @property
    def rows_per_s(self) -> float:
        """Built."""
        return self.rows / max(1e-9, self.build_s)

    @property
    def best_recall(self) -> float:
        """With the most effort."""
        return max(self.recall.values())

    def effort_for(self, recall: float) -> int | None:
        """The least that reaches it; None where none does."""
        return next((effort for effort, found in sorted(self.recall.items()) if found >= recall), None)


@decodable
class Pointer(msgspec.Struct, frozen=True):
    """The generation that is searched, and how."""

    generation: str
    effort: int
    recall: float
    number: int = 0


def manifest_location(index: str, name: str) -> str:
    """What commits a generation."""
    return f"{index}/generations/{name}/index.json"


def files_location(index: str, name: str, file: str) -> str:
    """A file of a generation."""
    return f"{index}/generations/{name}/{file}"


def read_generation(blobs: Blobs, index: str, name: str) -> Generation | None:
    """One that is committed; raises Broken where it cannot be read."""
    return read_manifest(blobs, manifest_location(index, name), Generation, _FORMAT)


def current(blobs: Blobs, index: str) -> Pointer | None:
    """What the last pointer says; None where there is none yet."""
    return current_pointer(blobs, index, Pointer)


def is_switched(blobs: Blobs, index: str, name: str, recall: float) -> bool:
    """Whether it is or was the current one, with that recall at least."""
    return any(
        each.generation == name and each.recall >= recall for each in pointers_newest_first(blobs, index, Pointer)
    )


def switch(blobs: Blobs, index: str, generation: Generation, recall: float) -> bool:
    """Make it the current one, once; False where it does not reach that recall."""
    effort = generation.effort_for(recall)
    if effort is None:
        return False
    while not is_switched(blobs, index, generation.name, recall):
        if add_pointer(
            blobs, index, lambda number: Pointer(generation.name, effort, generation.recall[effort], number)
        ):
            break
    return True


def prune(blobs: Blobs, index: str) -> None:
    """Delete the files of generations that were replaced."""
    delete_replaced(blobs, index, Pointer)
