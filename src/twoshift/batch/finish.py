"""The end of a job: every part's stats, the manifest, the report, and last of all `_SUCCESS`; or what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from twoshift.batch.against import AgainstReport
from twoshift.batch.index_report import IndexReport
from twoshift.batch.loading import LoadReport
from twoshift.batch.parity_report import ParityReport
from twoshift.batch.part_records import Listing, list_output
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.run_record import RunRecord
from twoshift.batch.summary import Summary, summary_page
from twoshift.batch.verify import (
    PartCheck,
    PartState,
    blocked_parts,
    check_parts,
    damaged_parts,
    refuse_damaged,
    resized,
)
from twoshift.decodable import decodable
from twoshift.ports import Blobs

__all__ = ["add_to_report", "finish", "leave", "look_at_parts", "read_runs", "read_summary", "write_run"]


def write_run(output: Blobs, folder: str, name: str, record: RunRecord) -> None:
    """This run so far: written now and then, so that a run that is killed is in the report too."""
    output.write(f"{folder.rstrip('/')}/_twoshift/runs/{name}.json", msgspec.json.encode(record))


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
    return sorted(found, key=lambda run: run.began_unix_s)  # names of pieces have no order


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
    output: Blobs,
    plan: Plan,
    known: Iterable[PartStats],
    runs: list[RunRecord],
    parity: ParityReport | None,
    indexed: Callable[[], IndexReport | None] = lambda: None,
    load: LoadReport | None = None,
) -> Summary:
    """Write everything that a finished job has; raises Broken where a part is missing or damaged.

    Nothing where more rows have failed than may: the parts are the truth about that, and `state` says so. `indexed`
    commits the job's index, of parts that are whole; where that is not good enough, all but the word of success is
    written.
    """
    listing = list_output(output, plan.settings.output)
    stats = _all_stats(output, plan, known, listing)
    summary, budget = Summary.of(plan, stats, runs, parity), plan.settings.error_budget
    summary = msgspec.structs.replace(summary, load=load)
    if budget is not None and budget.is_spent(summary.errors, summary.rows, least_rows=1):
        return msgspec.structs.replace(summary, state="too many errors")
    index, folder = indexed(), f"{plan.settings.output.rstrip('/')}/_twoshift"
    summary = summary.with_index(index)
    manifest = _manifest(plan, stats, listing) | ({} if index is None else {"index": index})
    output.write(f"{folder}/manifest.json", msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    _write_report(output, plan, summary, stats)
    if index is None or index.switched:
        output.create(f"{plan.settings.output.rstrip('/')}/_SUCCESS", b"")
    return summary


def add_to_report(output: Blobs, plan: Plan, **found: AgainstReport | LoadReport) -> Summary | None:
    """What was found once the job was done, by its name in the report; None where the job is not done.

    Raises Broken where a part is missing or damaged.
    """
    summary = read_summary(output, plan.settings.output)
    if summary is None or all(getattr(summary, name) == value for name, value in found.items()):
        return summary
    summary = msgspec.structs.replace(summary, **found)
    _write_report(output, plan, summary, _all_stats(output, plan, (), list_output(output, plan.settings.output)))
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


@decodable
class _Manifest(msgspec.Struct, frozen=True):
    parts: tuple[_ListedPart, ...]


def look_at_parts(output: Blobs, plan: Plan, listing: Listing) -> list[str]:
    """Parts of a finished job that are gone; raises Broken that names those that are not as they were written.

    By names and sizes alone, in one listing: every byte is looked at before the word of success is written.
    """
    folder = plan.settings.output.rstrip("/")
    listed = _listed(output, folder)
    damaged = [*blocked_parts(plan, listing), *damaged_parts(listing)]
    known = {check.name for check in damaged}
    for part in listed:
        size = listing.sizes.get(part.name)
        if part.bytes is not None and size not in (None, part.bytes) and part.name not in known:
            damaged.append(PartCheck(part.name, PartState.DAMAGED, resized(size or 0, part.bytes)))
    refuse_damaged(folder, damaged)
    return [part.name for part in listed if part.name not in listing.sizes]


def _listed(output: Blobs, folder: str) -> tuple[_ListedPart, ...]:
    """The parts of a job that is finished; none where it is not, or where the list cannot be read."""
    data = output.read(f"{folder}/_twoshift/manifest.json")
    if data is None or output.stat(f"{folder}/_SUCCESS") is None:
        return ()
    try:
        return msgspec.json.decode(data, type=_Manifest).parts
    except msgspec.DecodeError:
        return ()  # they are all looked at before another one is written


def _all_stats(output: Blobs, plan: Plan, known: Iterable[PartStats], listing: Listing) -> list[PartStats]:
    """What became of each shard; the parts that this run has not written are read, every byte of them."""
    by_shard = {each.shard: each for each in known}
    missing = [shard for shard in range(len(plan.shards)) if shard not in by_shard]
    refuse_damaged(plan.settings.output.rstrip("/"), blocked_parts(plan, listing))
    damaged: list[PartCheck] = []
    for shard, check in zip(missing, check_parts(output, plan, missing, listing), strict=True):
        if check.stats is None:
            damaged.append(check)
        else:
            by_shard[shard] = check.stats
    refuse_damaged(plan.settings.output.rstrip("/"), damaged)
    return [by_shard[shard] for shard in range(len(plan.shards))]


def _manifest(plan: Plan, stats: list[PartStats], listing: Listing) -> dict[str, object]:
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
            {"name": name, "rows": each.rows, "errors": each.errors, "bytes": listing.sizes.get(name)}
            | ({"sha256": sha256} if (sha256 := listing.checksum(name)) else {})
            for name, each in named
        ],
    }
