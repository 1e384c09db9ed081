"""The end of a job: every part's stats, the manifest, the report, and last of all `_SUCCESS`; or what there is."""

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

__all__ = ["check_parts", "finish", "leave", "read_runs", "read_summary", "write_run"]

_READERS = 8
_NAMED = 3


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
    manifest = _manifest(plan, stats, _sizes(output, plan))
    output.write(f"{folder}/manifest.json", msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    _write_report(output, plan, summary, stats)
    output.create(f"{plan.settings.output.rstrip('/')}/_SUCCESS", b"")
    return summary


def leave(output: Blobs, plan: Plan, summary: Summary, stats: list[PartStats]) -> None:
    """The report of a run that ended before the job was done; nothing where it is done after all."""
    if output.stat(f"{plan.settings.output.rstrip('/')}/_SUCCESS") is None:
        _write_report(output, plan, summary, stats)


def _write_report(output: Blobs, plan: Plan, summary: Summary, stats: list[PartStats]) -> None:
    folder = f"{plan.settings.output.rstrip('/')}/_twoshift"
    output.write(f"{folder}/report.json", msgspec.json.format(msgspec.json.encode(summary), indent=1))
    output.write(f"{folder}/report.html", summary_page(summary, stats).encode())


class _ListedPart(msgspec.Struct, frozen=True):
    name: str
    bytes: int | None = None


class _Manifest(msgspec.Struct, frozen=True):
    parts: tuple[_ListedPart, ...]


def check_parts(output: Blobs, plan: Plan) -> list[str]:
    """Parts of a finished job that are gone; raises Broken that names those that are not as they were.

    By names and sizes alone, in one listing. Of a job that is not finished nothing can be said: none.
    """
    folder = plan.settings.output.rstrip("/")
    data = output.read(f"{folder}/_twoshift/manifest.json")
    if data is None or output.stat(f"{folder}/_SUCCESS") is None:
        return []
    try:
        listed = msgspec.json.decode(data, type=_Manifest).parts
    except msgspec.DecodeError:
        return []  # they are all looked at before another one is written
    there = _sizes(output, plan)
    if changed := [part.name for part in listed if part.bytes not in (None, there.get(part.name, part.bytes))]:
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        told = f"{', '.join(changed[:_NAMED])}{more} in {folder}"
        are, them = ("is", "it") if len(changed) == 1 else ("are", "them")
        raise Broken(f"{told} {are} not as the job left {them}; delete {them} to have {them} written anew")
    return [part.name for part in listed if part.name not in there]


def _sizes(output: Blobs, plan: Plan) -> dict[str, int]:
    folder = f"{plan.settings.output.rstrip('/')}/"
    if not plan.shards:
        return {}
    return {blob.location.removeprefix(folder): blob.size_bytes for blob in output.list(folder)}


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


def _manifest(plan: Plan, stats: list[PartStats], sizes: dict[str, int]) -> dict[str, object]:
    named = [(part_location(plan, each.shard).rpartition("/")[2], each) for each in stats]
    return {
        "format": 1,
        "model": plan.model,
        "settings": plan.settings,
        "inputs": plan.files,
        "schema": plan.schema.to_string(),
        "rows": sum(each.rows for each in stats),
        "errors": sum(each.errors for each in stats),
        "parts": [
            {"name": name, "rows": each.rows, "errors": each.errors, "bytes": sizes.get(name)} for name, each in named
        ],
    }
