"""Small parts become one: read, written as a new part, and removed once that is there."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from twoshift.batch.part_records import list_output, write_record
from twoshift.batch.part_stats import PartStats, StreamMark
from twoshift.batch.plan import Plan
from twoshift.batch.sinks.known import SINKS
from twoshift.errors import TwoshiftError
from twoshift.policy.compaction import SmallPart, parts_to_merge
from twoshift.ports import Blobs
from twoshift.streams.commits import CommittedPart, StreamOutput
from twoshift.streams.source import Position

__all__ = ["Compactor"]

_log = logging.getLogger(__name__)
_MOST_BYTES = 256 << 20  # of a merged part
_NOT_SUMMED = ("shard", "worker", "kinds", "failed", "stream", "began_unix_s")


class Compactor:
    """Merges parts in a thread of its own, one merge at a time; the newest part is never merged.

    A reader who lists the folder between the new part and the removal of the old ones sees rows twice; the names tell:
    part-000000-000059 has the rows of the parts 0 to 59.
    """

    def __init__(
        self, plan: Plan, output: Blobs, merged: Callable[[list[Position]], Position],
        committed: Sequence[CommittedPart], many: int,
    ) -> None:  # fmt: skip
        """`many` parts of about the same size are merged; 0: none."""
        self._plan, self._output, self._merged, self._many = plan, output, merged, many
        self._folder = plan.settings.output.rstrip("/")
        self._listing = StreamOutput(output, self._folder)
        self._lock = threading.Lock()  # guards the two
        self._parts, self._gone = list(committed), 0
        self._thread = ThreadPoolExecutor(1, "twoshift-merge")
        self._work: Future[None] | None = None

    def add(self, part: CommittedPart, below: int | None) -> None:
        """A part is committed; those of windows before `below` may be merged, all for None."""
        with self._lock:
            self._parts.append(part)
        if self._many and (self._work is None or self._work.done()):
            self._work = self._thread.submit(self._merge_all, below)

    def counts(self) -> tuple[int, int]:
        """How many parts there are, and how many are gone since this was last asked."""
        with self._lock:
            gone, self._gone = self._gone, 0
            return len(self._parts), gone

    def close(self) -> None:
        """Finish what is begun."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _merge_all(self, below: int | None) -> None:
        try:
            while (chosen := self._chosen(below)) is not None:
                merged = self._merge(chosen)
                with self._lock:
                    at = self._parts.index(chosen[0])
                    self._parts[at : at + len(chosen)] = [merged]
                    self._gone += len(chosen)
        except (TwoshiftError, OSError) as error:  # a full disk: the parts are as they were
            _log.warning("parts of %s could not be merged, and stay as they are: %s", self._folder, error)

    def _chosen(self, below: int | None) -> list[CommittedPart] | None:
        with self._lock:
            parts = [part for part in self._parts[:-1] if below is None or part.last < below]
        sizes = self._sizes(parts)
        found = parts_to_merge([SmallPart(each.windows, sizes[each.name]) for each in parts], self._many, _MOST_BYTES)
        return None if found is None else parts[found.start : found.stop]

    def _sizes(self, parts: Sequence[CommittedPart]) -> dict[str, int]:
        """A listing only where there may be enough of them."""
        if len(parts) < self._many:
            return dict.fromkeys((part.name for part in parts), 0)
        return dict(list_output(self._output, self._folder).sizes)

    def _merge(self, parts: list[CommittedPart]) -> CommittedPart:
        settings, sink = self._plan.settings, SINKS[self._plan.settings.output_format]
        first, last = parts[0].first, parts[-1].last
        name = f"part-{first:06d}-{last:06d}.{settings.output_format}"
        location = f"{self._folder}/{name}"
        listing = list_output(self._output, self._folder)
        sized = [CommittedPart(each.name, each.first, each.last, listing.sizes[each.name]) for each in parts]
        stats = self._sum([self._listing.stats(each, listing) for each in sized], first, last)
        staged = self._output.staging(location) / f"{name}.{os.getpid()}.{uuid.uuid4().hex}"
        writer = sink.open(staged, self._plan.schema, settings.compression)
        try:
            for part in parts:
                with self._output.open(f"{self._folder}/{part.name}") as file:
                    for batch in sink.batches(file, self._plan.schema):
                        writer.write(batch)
            seal = writer.finish(stats)
            write_record(self._output, location, seal, stats)
            self._output.publish(staged, location)
        except BaseException:
            writer.discard()
            raise
        finally:
            staged.unlink(missing_ok=True)
        for part in parts:
            self._listing.remove(part, listing)
        return CommittedPart(name, first, last, seal.size_bytes)

    def _sum(self, each: list[PartStats], first: int, last: int) -> PartStats:
        names = [name for name in PartStats.__struct_fields__ if name not in _NOT_SUMMED]
        summed = {name: sum(getattr(stats, name) for stats in each) for name in names}
        kinds: dict[str, int] = {}
        for stats in each:
            for kind, count in stats.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
        positions = [stats.stream.position for stats in each if stats.stream is not None]
        mark = StreamMark(first, last, self._merged(positions))
        failed = tuple(row for stats in each for row in stats.failed)[:5]
        began_s = min(stats.began_unix_s for stats in each)
        return PartStats(
            shard=first, worker="stream", kinds=kinds, failed=failed, stream=mark, began_unix_s=began_s, **summed
        )
