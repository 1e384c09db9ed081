"""A job's index at its end: pieces that are missing are made, a generation is built, measured, and switched to."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from twoshift.batch.index_pieces import piece_from_part, piece_location, schema_of_pieces, vector_column
from twoshift.batch.index_report import IndexReport
from twoshift.batch.index_settings import index_location
from twoshift.batch.kinds.kind import FirstLook
from twoshift.batch.part_records import Listing, list_output
from twoshift.batch.plan import Plan, part_location, plan_location
from twoshift.batch.settings import JobSettings
from twoshift.errors import NotFound, TwoshiftError
from twoshift.ports import Blobs
from twoshift.vectors.building import BuildTask, build_generation, check_memory
from twoshift.vectors.generations import is_switched, prune, switch
from twoshift.vectors.known import LIBRARIES
from twoshift.vectors.library import IndexShape
from twoshift.vectors.names import library_of
from twoshift.vectors.pieces import check_key_type
from twoshift.vectors.searching import write_index_note

__all__ = ["JobIndex", "check_before_loading", "index_for"]

_KEPT_NAME = 16  # characters of a checksum


def check_before_loading(settings: JobSettings, looked: FirstLook | None) -> None:
    """Raises InvalidInput for a library that is not installed, and for a column that cannot be a key."""
    if settings.index is None:
        return
    LIBRARIES[library_of(settings.index)].module()
    if looked is not None and settings.index_key is not None:
        check_key_type(settings.index_key, looked.kept.field(settings.index_key).type)


def index_for(plan: Plan, blobs_for: Callable[[str], Blobs]) -> JobIndex | None:
    """A job's index, where it has one; raises InvalidInput where it cannot have it."""
    if plan.settings.index is None:
        return None
    index = JobIndex(plan, blobs_for)
    index.check()
    return index


class JobIndex:
    """The index that a job's settings ask for; made where they ask for one."""

    def __init__(self, plan: Plan, blobs_for: Callable[[str], Blobs]) -> None:
        settings = plan.settings
        assert settings.index is not None  # noqa: S101 - there is none otherwise
        self._plan, self._output = plan, blobs_for(settings.output)
        self._index = index_location(settings.output, settings.index)
        self._blobs, self._library = blobs_for(self._index), library_of(settings.index)

    def check(self) -> None:
        """Raises InvalidInput for what can be told before the first row: no vectors, no key, no memory."""
        schema_of_pieces(self._plan)
        if self._plan.rows is not None:
            _, dims = vector_column(self._plan.schema, self._plan.model.name, self._plan.settings.index)
            check_memory(self._index, self._library, self._plan.rows, dims)

    @property
    def is_done(self) -> bool:
        """Whether its generation is or was the current one."""
        return is_switched(self._blobs, self._index, self._name(self._listing()), self._plan.settings.index_recall)

    def commit(self, tell: Callable[[str], None]) -> IndexReport:
        """Build and switch, each once; whoever was killed on the way is repeated by the next run."""
        listing, settings = self._listing(), self._plan.settings
        generation = build_generation(
            self._blobs, self._task(self._name(listing)), lambda folder: self._pieces(listing, folder, tell), tell
        )
        switched = switch(self._blobs, self._index, generation, settings.index_recall)
        if switched:
            write_index_note(self._output, settings.output, self._index)
            prune(self._blobs, self._index)
            self._drop_pieces()
        return IndexReport.of(self._index, generation, settings.index_recall, switched)

    def _listing(self) -> Listing:
        return list_output(self._output, self._plan.settings.output)

    def _name(self, listing: Listing) -> str:
        """The same for the same job with the same parts, whoever builds it."""
        settings = self._plan.settings
        digest = hashlib.sha256(self._output.read(plan_location(settings.output)) or b"")
        digest.update(f"{self._library} {settings.index_metric} {settings.index_key}".encode())
        for shard in range(len(self._plan.shards)):
            name = part_location(self._plan, shard).rpartition("/")[2]
            digest.update(f"{name} {listing.sizes.get(name)} {listing.checksum(name)}".encode())
        return digest.hexdigest()[:_KEPT_NAME]

    def _task(self, name: str) -> BuildTask:
        settings, model = self._plan.settings, self._plan.model
        _, dims = vector_column(self._plan.schema, model.name, settings.index)
        return BuildTask(
            self._index, name, self._library, IndexShape(settings.index_metric, dims), settings.index_key,
            model.name, model.weights, model.precision, settings.output,
        )  # fmt: skip

    def _pieces(self, listing: Listing, folder: Path, tell: Callable[[str], None]) -> Sequence[Path]:
        """The files of all pieces on this machine; those that are missing are made, and those elsewhere fetched."""
        shards = len(self._plan.shards)
        there = self._output.names(piece_location(self._plan, 0, "").rpartition("/")[0])
        paths = []
        for shard in range(shards):
            tell(f"Collecting the vectors of shard {shard + 1:,} of {shards:,}")
            name = part_location(self._plan, shard).rpartition("/")[2]
            location = piece_location(self._plan, shard, listing.checksum(name) or "unknown")
            path = Path(location)
            if path.name not in there or listing.checksum(name) is None:
                piece_from_part(self._output, self._plan, shard, path := folder / path.name)
            elif "://" in location:
                path = folder / path.name
                with self._output.open(location) as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            paths.append(path)
        return paths

    def _drop_pieces(self) -> None:
        """They are of no more use, and can be made again."""
        folder = piece_location(self._plan, 0, "").rpartition("/")[0]
        with contextlib.suppress(NotFound, TwoshiftError, OSError):
            for blob in self._output.list(f"{folder}/"):
                self._output.delete(blob.location)
