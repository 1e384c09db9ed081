"""The end of a job: every part's stats, the manifest, the report, and last of all `_SUCCESS`."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from twoshift.batch.part import PartStats, read_stats
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.receipt import Receipt
from twoshift.batch.summary import RunRecord, Summary, summary_page
from twoshift.errors import Broken
from twoshift.ports import Blobs

__all__ = ["finish", "read_runs", "read_summary", "write_run"]

_READERS = 8


def write_run(output: Blobs, folder: str, number: int, record: RunRecord) -> None:
    """This run so far: written now and then, so that a run that is killed is in the report too."""
    output.write(f"{folder.rstrip('/')}/_twoshift/runs/{number:06d}.json", msgspec.json.encode(record))


def read_runs(output: Blobs, folder: str) -> list[RunRecord]:
    """Every run so far, in order; one that cannot be read is left out."""
    runs = f"{folder.rstrip('/')}/_twoshift/runs"
    found = []
    for name in sorted(output.names(runs)):
        data = output.read(f"{runs}/{name}")
        try:
            found.append(msgspec.json.decode(data or b"", type=RunRecord))
        except msgspec.DecodeError:
            continue
    return found


def read_summary(output: Blobs, folder: str) -> Summary | None:
    """What the report of a finished job says; None where it is not finished, or cannot be read."""
    folder = folder.rstrip("/")
    data = output.read(f"{folder}/_twoshift/report.json")
    if data is None or output.stat(f"{folder}/_SUCCESS") is None:
        return None
    try:
        return msgspec.json.decode(data, type=Summary)
    except msgspec.DecodeError:
        return None


def finish(
    output: Blobs, plan: Plan, known: Iterable[PartStats], runs: list[RunRecord], parity: Receipt | None
) -> Summary | None:
    """Write everything that a finished job has; raises Broken where a part is missing or damaged.

    Nothing, and None, where more rows have failed than may: the parts are the truth about that.
    """
    stats = _all_stats(output, plan, known)
    summary, budget = Summary.of(plan, stats, runs, parity), plan.settings.error_budget
    if budget is not None and budget.is_spent(summary.errors, summary.rows, least_rows=1):
        return None
    folder = f"{plan.settings.output.rstrip('/')}/_twoshift"
    output.write(f"{folder}/manifest.json", msgspec.json.format(msgspec.json.encode(_manifest(plan, stats)), indent=1))
    output.write(f"{folder}/report.json", msgspec.json.format(msgspec.json.encode(summary), indent=1))
    output.write(f"{folder}/report.html", summary_page(summary, stats).encode())
    output.create(f"{plan.settings.output.rstrip('/')}/_SUCCESS", b"")
    return summary


def _all_stats(output: Blobs, plan: Plan, known: Iterable[PartStats]) -> list[PartStats]:
    by_shard = {each.shard: each for each in known}
    missing = [shard for shard in range(len(plan.shards)) if shard not in by_shard]

    def read(shard: int) -> PartStats:
        location = part_location(plan, shard)
        try:
            with output.open(location) as file:
                stats = read_stats(file, location, plan.settings.output_format)
        except OSError as error:
            raise Broken(f"{location} cannot be read: {error}") from error
        rows = plan.shard_rows(shard)
        if stats.shard != shard or (rows is not None and stats.rows != rows):
            expected = "its shard's rows" if rows is None else f"the {rows:,} rows of its shard"
            raise Broken(f"{location} does not hold {expected}; delete it to have it written anew")
        return stats

    with ThreadPoolExecutor(_READERS) as readers:
        by_shard |= {each.shard: each for each in readers.map(read, missing)}
    return [by_shard[shard] for shard in range(len(plan.shards))]


def _manifest(plan: Plan, stats: list[PartStats]) -> dict[str, object]:
    return {
        "format": 1,
        "model": plan.model,
        "settings": plan.settings,
        "inputs": plan.files,
        "schema": plan.schema.to_string(),
        "rows": sum(each.rows for each in stats),
        "errors": sum(each.errors for each in stats),
        "parts": [
            {"name": part_location(plan, each.shard).rpartition("/")[2], "rows": each.rows, "errors": each.errors}
            for each in stats
        ],
    }
