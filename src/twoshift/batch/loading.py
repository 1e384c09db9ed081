"""Committed parts of a job on their way into a store: in the order of the shards, each exactly once.

The parts are the job's result. To load one is a step that is repeated until its mark is in the store.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from twoshift.batch.part_records import Listing, list_output
from twoshift.batch.part_rows import part_batches
from twoshift.batch.plan import Plan, part_location, plan_location, read_plan
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.result_columns import is_vector
from twoshift.batch.settings import JobSettings
from twoshift.batch.stores.known import open_store, without_password
from twoshift.batch.stores.rows import KeyedRows, store_table, version_of
from twoshift.batch.stores.store import Store
from twoshift.batch.stores.table import LoadedPart, StoreTable
from twoshift.batch.verify import check_parts, refuse_damaged
from twoshift.declare import settings_of
from twoshift.decodable import decodable
from twoshift.engine.window import described
from twoshift.errors import InvalidInput, TryLater, TwoshiftError
from twoshift.ports import Blobs

__all__ = ["JobLoading", "LoadReport", "load_parts"]

_CHUNK_BYTES = 64 << 20  # of rows that are in memory at once
_OTHER_BYTES = 256  # of a row besides its vectors, about
_JOB_DIGITS = 16
_LEAST_WAIT_S, _MOST_WAIT_S = 1.0, 30.0
_CLOSE_S = 10.0
_WHEN = re.compile(r"; try again in [^;]+$")  # which is said again at the end


@decodable
class LoadReport(msgspec.Struct, frozen=True):
    """How far the parts are in the store."""

    into: str
    table: str
    job: str  # as the marks name it
    shards: int  # loaded
    rows: int  # of them
    new_rows: int  # that were not in the table before; the others have replaced some
    keyless: int  # rows without a key: they are in the parts alone
    rows_per_s: float | None = None  # of this run, while it loaded
    problem: str = ""  # why not all are loaded


class JobLoading:
    """The loads of one job, by a thread of its own while workers run; does nothing for a job without a store."""

    def __init__(self, settings: JobSettings) -> None:
        """Opens no connection yet."""
        self._settings, self._place = settings, settings.into
        self._shown = "" if self._place is None else without_password(self._place)
        self._store: Store | None = None
        self._parts: _Parts | None = None
        self._followed = 0  # of what is committed, by the thread that follows it
        self._committed = set[int]()
        self._changed, self._closed = threading.Condition(), False  # guards the two
        self._problem = ""  # why the store takes no rows
        self._failure: Exception | None = None  # the same, if it will not pass
        self._thread: threading.Thread | None = None

    @property
    def shown_settings(self) -> JobSettings:
        """Without the password of the store."""
        return self._settings if self._place is None else msgspec.structs.replace(self._settings, into=self._shown)

    def check(self, schema: pa.Schema, is_whole: bool) -> None:
        """Before the first shard: whether the store answers, and its table can have these columns."""
        if self._place is not None:
            self._opened(self._place).check(store_table(self._settings, schema, is_whole))

    def begin(self, plan: Plan, output: Blobs, committed: Iterable[int], in_background: bool = True) -> None:
        """Make the table, and load what is committed and will be, beside the workers."""
        if self._place is None:
            return
        table, store = store_table(self._settings, plan.schema), self._opened(self._place)
        store.create(table)
        self._parts = _Parts(store, table, plan, output, list_output(output, plan.settings.output))
        if in_background:
            self._committed |= set(committed)
            self._thread = threading.Thread(target=self._work, args=(self._parts,), name="twoshift-load", daemon=True)
            self._thread.start()

    def follow(self, now: JobSnapshot, committed: Sequence[int]) -> JobSnapshot:
        """These are committed, too; the snapshot with how far the store is."""
        if self._parts is None:
            return now
        if len(committed) > self._followed:
            self.add(committed[self._followed :])
            self._followed = len(committed)
        return replace(now, rows_loaded=self._parts.all_rows, load_problem=self._problem)

    def add(self, committed: Iterable[int]) -> None:
        """These are committed, too."""
        with self._changed:
            self._committed.update(committed)
            self._changed.notify()

    def finish(self, shards: Iterable[int] | None, loaded: Callable[[int], None]) -> LoadReport | None:
        """Load what is left of these shards, of all for None; raises TryLater or InvalidInput.

        `loaded` is called with how many rows are in the store.
        """
        if self._parts is None:
            return None
        self._end_thread(None)
        there = set(range(len(self._parts.plan.shards)) if shards is None else shards)
        try:
            while (shard := self._parts.next_of(there)) is not None:
                self._parts.load(shard)
                loaded(self._parts.all_rows)
        except TryLater as error:
            self._problem = str(error)
            raise TryLater(self._left(self._parts, str(error)), error.retry_after_s) from error
        self._problem = ""
        return self.report()

    def close(self) -> None:
        """Let go; a load that hangs is left behind."""
        self._end_thread(_CLOSE_S)
        if self._store is not None and (self._thread is None or not self._thread.is_alive()):
            self._store.close()
            self._store = None

    @property
    def parts_loaded(self) -> int:
        """Over all runs."""
        return 0 if self._parts is None else len(self._parts.done)

    @property
    def problem(self) -> str:
        """Why the store takes no rows; empty where it does."""
        return self._problem

    def raise_failure(self) -> None:
        """What has ended the loads for good: a job is told at its end, and a stream has none."""
        if self._failure is not None:
            raise self._failure

    @property
    def next_shard(self) -> int | None:
        """The first that is not loaded; None where there is no store."""
        return None if self._parts is None else self._parts.next_shard

    def report(self) -> LoadReport | None:
        """As it is now; None where nothing was begun."""
        if (parts := self._parts) is None:
            return None
        done = list(parts.done.values())
        return LoadReport(
            self._shown,
            self._settings.into_table,
            parts.job,
            len(done),
            sum(each.rows for each in done),
            sum(each.new_rows for each in done),
            sum(each.keyless for each in done),
            parts.rows / parts.seconds if parts.seconds else None,
            self._problem,
        )

    def _opened(self, place: str) -> Store:
        self._store = self._store or open_store(place)
        return self._store

    def _left(self, parts: _Parts, why: str) -> str:
        """How far it is, and what to do."""
        done, shards, output = len(parts.done), len(parts.plan.shards), self._settings.output
        return (
            f"{_WHEN.sub('', why)}. {done:,} of {shards:,} parts are loaded into {self._shown}, table "
            f"{self._settings.into_table}. The parts in {output} are kept. To load the rest, run the same command "
            f"again, or run `twoshift load {output} --into ...`"
        )

    def _end_thread(self, most_s: float | None) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(most_s)

    def _work(self, parts: _Parts) -> None:
        while (shard := self._awaited(parts)) is not None:
            try:
                parts.load(shard)
                self._problem = ""
            except TryLater as error:
                self._problem = str(error)
                with self._changed:
                    wait_s = min(_MOST_WAIT_S, max(_LEAST_WAIT_S, error.retry_after_s))
                    self._changed.wait_for(lambda: self._closed, wait_s)
            except Exception as error:  # it will not pass: `finish` tries it once more, and raises it
                self._problem = str(error) if isinstance(error, TwoshiftError) else described(error)
                self._failure = error
                return

    def _awaited(self, parts: _Parts) -> int | None:
        """The next shard that is committed and not loaded; None: no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or parts.next_of(self._committed) is not None)
            return None if self._closed else parts.next_of(self._committed)


def load_parts(
    output: Blobs, folder: str, wanted: dict[str, Any], loaded: Callable[[float], None]
) -> tuple[LoadReport, int]:
    """The committed parts of a job into a store, and how many shards the job has; `wanted` are settings of the load.

    `loaded` is called with the share of the parts that is in the store.
    """
    plan = read_plan(output, folder)
    if plan is None or plan.is_stream:
        hint = (
            "; this folder belongs to a stream, which loads its results with `twoshift stream --into`" if plan else ""
        )
        raise InvalidInput("output", folder, f"the output folder of a job{hint}")
    settings = settings_of(JobSettings, {**msgspec.structs.asdict(plan.settings), "output": folder, **wanted})
    plan = msgspec.structs.replace(plan, settings=settings)
    names = output.names(folder)
    there = [k for k in range(len(plan.shards)) if part_location(plan, k).rpartition("/")[2] in names]
    loading, shards = JobLoading(settings), max(1, len(plan.shards))
    try:
        loading.check(plan.schema, is_whole=True)
        loading.begin(plan, output, there, in_background=False)
        done = loading.finish(there, lambda _: loaded(loading.parts_loaded / shards))
    finally:
        loading.close()
    assert done is not None  # noqa: S101 - `into` is given
    return done, len(plan.shards)


class _Parts:
    """Which parts are loaded, and how one is."""

    def __init__(self, store: Store, table: StoreTable, plan: Plan, output: Blobs, listing: Listing) -> None:
        self._store, self._table, self.plan, self._output, self._listing = store, table, plan, output, listing
        frozen = output.read(plan_location(plan.settings.output)) or b""
        self.job = hashlib.sha256(frozen).hexdigest()[:_JOB_DIGITS]  # the same wherever the folder is moved
        self.done: dict[int, LoadedPart] = dict(store.loaded(table, self.job))
        self._first = 0
        self.rows, self.seconds = 0, 0.0  # of this run
        width = sum(4 * field.type.list_size for field in table.schema if is_vector(field.type)) + _OTHER_BYTES
        self._chunk_rows = max(1, _CHUNK_BYTES // width)

    @property
    def all_rows(self) -> int:
        """Of all loaded parts, over all runs."""
        return sum(each.rows for each in list(self.done.values()))

    @property
    def next_shard(self) -> int:
        """In order: of two rows with one key the later one is to win."""
        while self._first in self.done:
            self._first += 1
        return self._first

    def next_of(self, committed: set[int]) -> int | None:
        """The next shard, if it is committed."""
        return shard if (shard := self.next_shard) in committed else None

    def load(self, shard: int) -> None:
        """Raises Broken where the part is damaged."""
        self._verify(shard)
        began_s = time.monotonic()
        batches = part_batches(self._output, self.plan, shard, self._chunk_rows)
        part = KeyedRows(self._table, self.job, shard, version_of(self.plan), batches)
        self.done[shard] = self._store.load(self._table, part)
        self.rows, self.seconds = self.rows + self.done[shard].rows, self.seconds + time.monotonic() - began_s

    def _verify(self, shard: int) -> None:
        """A part of an earlier run may have been damaged since; one of this run was just written."""
        name = part_location(self.plan, shard).rpartition("/")[2]
        if name not in self._listing.sizes or not self._listing.seals_of(name):
            return
        bad = [each for each in check_parts(self._output, self.plan, [shard], self._listing) if each.why]
        refuse_damaged(self.plan.settings.output, bad, self.plan.is_stream)
