"""One shard after the other through an engine: read, prepare, sort, run, restore, write, publish."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from twoshift.batch.index_pieces import drop_piece, piece_writer, publish_piece
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.part_file import Seal
from twoshift.batch.part_records import write_record
from twoshift.batch.part_stats import PartStats, StreamMark
from twoshift.batch.plan import Plan, part_location, plan_location
from twoshift.batch.sinks.known import SINKS
from twoshift.batch.windows import BegunWindow, Tally
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.host_turns import host_turns_of, owed_share_of
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import Broken
from twoshift.ports import Blobs

__all__ = ["PartWitness", "ShardScorer"]

_AHEAD = 8  # windows that are prepared, on the device or written while one is read


class PartWitness(Protocol):
    """Who has to know of a part before others see it; for a stream, whose parts are committed in order."""

    @property
    def mark(self) -> StreamMark:
        """How far the stream is with it."""
        ...

    def wrote(self, batch: pa.RecordBatch) -> None:
        """Rows of the part, in order."""
        ...

    def before_publish(self) -> None:
        """Waits until it may be seen; raises where it may not."""
        ...


class ShardScorer:
    """Scores shards of one plan; several may be in work at once, so that the device never waits for the next."""

    def __init__(
        self,
        engine: BlockTaker,
        plan: Plan,
        blobs_for: Callable[[str], Blobs],
        worker: str,
        owner: BlockOwner | None = None,
        wrote: Callable[[int], None] = lambda _: None,
        witness: PartWitness | None = None,
    ) -> None:
        """`wrote` is called with how many rows of the input have just been written."""
        self._plan, self._blobs_for, self._worker, self._wrote = plan, blobs_for, worker, wrote
        self._witness, self._plan_file = witness, self._plan_now()
        self._kind = kind_of(plan.settings)
        self._rows = self._kind.rows(engine, plan, blobs_for, owner)
        self._written = 0  # rows of the input
        self._turns, self._engine, self._owner = host_turns_of(engine), engine, owner
        self._prepare = ThreadPoolExecutor(2, "twoshift-prepare")

    def score(self, shard: int, stop: threading.Event, was_read: Callable[[], None]) -> tuple[PartStats, bool]:
        """The shard's stats, and whether it was us who published its part; raises Stopped once `stop` is set.

        `was_read` is called when all input is read: time to begin the next.
        """
        began_s = time.monotonic()
        self._refuse_another_job()
        output = self._blobs_for(self._plan.settings.output)
        location = part_location(self._plan, shard)
        staged = output.staging(location) / f"{Path(location).name}.{os.getpid()}.{uuid.uuid4().hex}"
        try:
            stats, seal = self._write(shard, staged, stop, was_read, began_s)
            if self._witness is not None:
                self._witness.before_publish()
            self._refuse_another_job()
            write_record(output, location, seal, stats)
            if published := output.publish(staged, location):
                publish_piece(output, self._plan, shard, staged, seal)
            return stats, published
        finally:
            staged.unlink(missing_ok=True)
            drop_piece(staged)

    def _plan_now(self) -> tuple[str, str] | None:
        found = self._blobs_for(self._plan.settings.output).stat(plan_location(self._plan.settings.output))
        return None if found is None else (found.identity, found.written)

    def _refuse_another_job(self) -> None:
        """Raises Broken where the folder was emptied meanwhile: our part would be one of the job that has it now."""
        if self._plan_file is not None and self._plan_now() != self._plan_file:
            folder = self._plan.settings.output
            raise Broken(
                f"{folder} was deleted or replaced while the job ran, so this process has stopped writing to the folder"
            )

    def rows_done(self, by_model: int) -> int:
        """Rows of the input, where the model has done so many of its own."""
        return self._kind.rows_done(self._plan.settings, by_model, self._written)

    def close(self) -> None:
        """No more shards."""
        self._prepare.shutdown(wait=False, cancel_futures=True)

    def _write(
        self, shard: int, staged: Path, stop: threading.Event, was_read: Callable[[], None],
        began_s: float,
    ) -> tuple[PartStats, Seal]:  # fmt: skip
        settings = self._plan.settings
        part = SINKS[settings.output_format].open(staged, self._plan.schema, settings.compression)
        writer = piece_writer(self._plan, staged, part)
        tally, begun = (
            Tally(),
            deque[Future[BegunWindow]](),
        )  # not written yet; the first may be in the writer's hands
        written = deque[Future[None]]()

        def settle(window: Future[BegunWindow]) -> None:
            batch = self._rows.finish(window.result(), tally, stop)
            begun.popleft()  # not before: what is given up is taken back from the engine
            writer.write(batch)
            if self._witness is not None:
                self._witness.wrote(batch)
            self._written += batch.num_rows
            self._wrote(batch.num_rows)

        with ThreadPoolExecutor(1, "twoshift-write") as writes:
            try:
                for batch in self._rows.windows(shard, stop):
                    begun.append(self._prepare.submit(self._begin, batch))
                    written.append(writes.submit(self._counted, settle, begun[-1]))
                    if len(written) > _AHEAD:
                        written.popleft().result()
                was_read()
                while written:
                    written.popleft().result()
                stats = self._stats(shard, tally, began_s)
                return stats, writer.finish(stats)
            except BaseException:
                writes.shutdown(wait=True, cancel_futures=True)
                for window in begun:
                    _abandon(window)
                writer.discard()
                raise

    def _begin(self, batch: Any) -> BegunWindow:
        begin: Callable[[Any], BegunWindow] = self._rows.begin
        if self._turns is None:
            return begin(batch)
        is_owed = self._owner is not None and self._owner.owed
        return self._turns.take(begin, batch, owed_share=owed_share_of(self._engine) if is_owed else 0.0)

    def _counted(self, settle: Callable[[Future[BegunWindow]], None], window: Future[BegunWindow]) -> None:
        """What it takes of the interpreter is the job's, too."""
        began_s = time.thread_time()
        settle(window)
        if self._turns is not None:
            self._turns.also(time.thread_time() - began_s)

    def _stats(self, shard: int, tally: Tally, began_s: float) -> PartStats:
        return PartStats(
            shard=shard,
            rows=tally.rows,
            errors=tally.errors,
            tokens=tally.tokens,
            truncated=tally.truncated,
            seconds=time.monotonic() - began_s,
            device_s=tally.device_s,
            worker=self._worker,
            kinds=dict(tally.kinds),
            output_tokens=tally.output_tokens,
            cached_tokens=tally.cached_tokens,
            skipped=tally.skipped,
            split=tally.split,
            failed=tuple(tally.failed),
            stream=None if self._witness is None else self._witness.mark,
            began_unix_s=time.time() - (time.monotonic() - began_s),
        )


def _abandon(future: Future[BegunWindow]) -> None:
    if not future.cancel() and future.exception() is None:
        future.result().cancel()
