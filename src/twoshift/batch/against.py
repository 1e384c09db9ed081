"""Two jobs over the same rows: how far the answers of one model are from those of the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twoshift.batch.part_rows import part_batches
from twoshift.batch.plan import Plan
from twoshift.batch.result_columns import ERROR
from twoshift.decodable import decodable
from twoshift.errors import Broken, InvalidInput
from twoshift.policy.answer_differences import DifferenceCounts, column_differences, kind_of_columns
from twoshift.ports import Blobs

__all__ = ["BOUND", "AgainstReport", "against_folder", "compared", "read_against", "write_against"]

BOUND = 0.05  # rows that differ by more are counted
_ROWS = 8192  # compared at once; a query of a reranker is whole in them, or is compared in two pieces


@decodable
class AgainstReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far a candidate's answers are from the stable model's, from 0 to 1 for each row."""

    candidate: str
    stable: str
    candidate_checksum: str
    stable_checksum: str
    kind: str  # what was compared: embedding, classification, ranking, text, values, label
    rows: int
    mean: float
    p50: float
    p99: float
    worst: float
    bound: float
    share_above: float  # of the rows, which differ by more than the bound
    failed_candidate: int  # rows that only the candidate has failed; they differ by 1
    failed_stable: int
    failed_both: int  # not compared

    def figures(self) -> dict[str, Any]:
        """What the registry keeps."""
        return {name: value for name, value in msgspec.to_builtins(self).items() if name not in ("candidate", "stable")}


def against_folder(output: str) -> str:
    """Where the stable model's answers lie: readers of datasets pass over it."""
    return f"{output.rstrip('/')}/_twoshift/against"


def read_against(blobs: Blobs, output: str) -> AgainstReport | None:
    """What was compared before; None where nothing was, or it cannot be read."""
    data = blobs.read(f"{against_folder(output)}.json")
    try:
        return None if data is None else msgspec.json.decode(data, type=AgainstReport)
    except msgspec.DecodeError:
        return None


def write_against(blobs: Blobs, output: str, made: AgainstReport) -> None:
    """Beside the job's report."""
    blobs.write(f"{against_folder(output)}.json", msgspec.json.format(msgspec.json.encode(made), indent=1))


def compared(candidate: Plan, stable: Plan, blobs_for: Callable[[str], Blobs]) -> AgainstReport:
    """The finished jobs' answers, row by row; raises InvalidInput where they are over other rows, Broken."""
    if [(each.location, each.identity) for each in candidate.files] != [
        (each.location, each.identity) for each in stable.files
    ]:
        accepted = "input files that stay the same while the job runs both models; start again with a new output folder"
        raise InvalidInput("inputs", ", ".join(candidate.settings.inputs), accepted)
    names, query = _result_columns(stable), stable.settings.text if stable.settings.pair else None
    counts, kind, failed = DifferenceCounts(BOUND), "", [0, 0, 0]
    streams = [_tables(each, blobs_for(each.settings.output)) for each in (candidate, stable)]
    for theirs, ours in itertools.zip_longest(*streams):
        if theirs is None or ours is None or theirs.num_rows != ours.num_rows:
            raise Broken(
                f"{candidate.settings.output} and {stable.settings.output} have different numbers of rows, so the "
                "answers of the two models cannot be compared; start again with a new output folder"
            )
        bad = [_is_failed(each) for each in (theirs, ours)]
        for place, rows in enumerate((bad[0] & ~bad[1], bad[1] & ~bad[0], bad[0] & bad[1])):
            failed[place] += int(rows.sum())
        counts.add(np.ones(int((bad[0] ^ bad[1]).sum())))
        good = pa.array(~(bad[0] | bad[1]))
        columns = [_columns(each.filter(good), names) for each in (ours, theirs)]
        queries = None if query is None else ours.filter(good).column(query).to_pylist()
        kind = str(kind_of_columns(columns[0]))
        counts.add(column_differences(columns[0], columns[1], queries))
    seen = counts.summary()
    return AgainstReport(
        candidate=candidate.model.name, stable=stable.model.name, candidate_checksum=candidate.model.checksum,
        stable_checksum=stable.model.checksum, kind=kind, rows=seen.rows, mean=seen.mean, p50=seen.p50, p99=seen.p99,
        worst=seen.worst, bound=seen.bound, share_above=seen.share_above, failed_candidate=failed[0],
        failed_stable=failed[1], failed_both=failed[2],
    )  # fmt: skip


def _result_columns(plan: Plan) -> list[str]:
    return [name for name in plan.schema.names if name != ERROR and name not in plan.settings.keep]


def _tables(plan: Plan, blobs: Blobs) -> Iterator[pa.Table]:
    """All rows of a job in the order of its input, so many at once however they were cut."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in _batches(plan, blobs):
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= _ROWS:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, _ROWS)
            waiting = table.slice(_ROWS).to_batches()
            rows -= _ROWS
    if rows:
        yield pa.Table.from_batches(waiting)


def _batches(plan: Plan, blobs: Blobs) -> Iterator[pa.RecordBatch]:
    for shard in range(len(plan.shards)):
        yield from part_batches(blobs, plan, shard, _ROWS)


def _is_failed(table: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(table.column(ERROR).is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _columns(table: pa.Table, names: list[str]) -> dict[str, NDArray[Any]]:
    """The results as arrays; a column that the other model has not is left out."""
    return {name: _array(table.column(name).combine_chunks()) for name in names if name in table.column_names}


def _array(column: Any) -> NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type) and not pa.types.is_nested(column.type.value_type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
    if pa.types.is_nested(column.type):
        found = np.empty(len(column), object)
        found[:] = [str(each) for each in column.to_pylist()]
        return found
    return column.to_numpy(zero_copy_only=False)
