"""Whether the parts of a job are what its workers wrote: by their sizes at once, by every byte where it matters."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from twoshift.batch.part_file import seal_of
from twoshift.batch.part_records import Listing, list_output, read_record
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan, part_location, read_plan
from twoshift.batch.sinks.known import read_stats
from twoshift.errors import Broken, InvalidInput
from twoshift.ports import Blobs

__all__ = [
    "PartCheck",
    "PartState",
    "Verification",
    "blocked_parts",
    "check_parts",
    "damaged_parts",
    "refuse_damaged",
    "resized",
    "verify_output",
]

_READERS = 8
_NAMED = 3


class PartState(enum.StrEnum):
    """What is known of a part."""

    VERIFIED = "verified"
    COUNTED = "counted"  # it has no checksum: an earlier release wrote it; its rows are there
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class PartCheck:
    """A part that was read."""

    name: str
    state: PartState
    why: str = ""  # it is damaged
    stats: PartStats | None = None  # of one that is not


@dataclass(frozen=True, slots=True)
class Verification:
    """An output folder that was read from end to end."""

    shards: int
    is_finished: bool  # by its _SUCCESS
    checks: tuple[PartCheck, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]  # files that readers of the folder would take for results

    def named(self, state: PartState) -> list[PartCheck]:
        """The parts of that state."""
        return [check for check in self.checks if check.state is state]

    @property
    def is_bad(self) -> bool:
        """Whether anything has to be put right."""
        return bool(self.named(PartState.DAMAGED) or self.unexpected or (self.is_finished and self.missing))


def verify_output(output: Blobs, folder: str, progress: Callable[[float], None]) -> Verification:
    """Every byte of an output folder; raises InvalidInput where it holds no job."""
    plan = read_plan(output, folder)
    if plan is None or plan.is_stream:
        raise InvalidInput("output", folder, "the output folder of a job" + (", not of a stream" if plan else ""))
    # The folder may have been moved since the job was begun
    plan = msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, output=folder.rstrip("/")))
    listing = list_output(output, folder)
    names = {_name(plan, shard): shard for shard in range(len(plan.shards))}
    there = [shard for name, shard in names.items() if name in listing.sizes]
    checks = blocked_parts(plan, listing)
    blocked = {check.name for check in checks}
    for check in check_parts(output, plan, there, listing):
        checks.append(check)
        progress((len(checks) - len(blocked)) / len(there))
    return Verification(
        len(plan.shards),
        output.stat(f"{folder.rstrip('/')}/_SUCCESS") is not None,
        tuple(checks),
        tuple(name for name in names if name not in listing.sizes and name not in blocked),
        tuple(sorted(listing.sizes.keys() - names.keys())),
    )


def damaged_parts(listing: Listing) -> list[PartCheck]:
    """Parts whose size alone shows that they are damaged."""
    found: list[PartCheck] = []
    for name, size in listing.sizes.items():
        wanted = {seal.size_bytes for seal in listing.seals_of(name)}
        if wanted and size not in wanted:
            found.append(PartCheck(name, PartState.DAMAGED, resized(size, max(wanted))))
    return found


def blocked_parts(plan: Plan, listing: Listing) -> list[PartCheck]:
    """Parts in whose place something lies that is not a regular file; on this machine's disks alone."""
    folder = plan.settings.output
    if "://" in folder:
        return []
    names = (_name(plan, shard) for shard in range(len(plan.shards)))
    found = [(name, _no_file(Path(folder, name))) for name in names if name not in listing.sizes]
    return [PartCheck(name, PartState.DAMAGED, why) for name, why in found if why]


def _no_file(path: Path) -> str:
    """What lies there instead of a file; nothing where there is none, or where one was put there meanwhile."""
    if not os.path.lexists(path) or path.is_file():
        return ""
    return (
        "is a folder"
        if path.is_dir()
        else "is a broken symbolic link"
        if path.is_symlink()
        else "is not a regular file"
    )


def check_parts(output: Blobs, plan: Plan, shards: Iterable[int], listing: Listing) -> Iterator[PartCheck]:
    """Read these shards' parts from end to end."""
    readers = ThreadPoolExecutor(_READERS, "twoshift-verify")
    try:
        yield from readers.map(lambda shard: _checked(output, plan, shard, listing), shards)
    finally:
        readers.shutdown(cancel_futures=True)  # who is interrupted does not wait for the rest


def refuse_damaged(folder: str, damaged: list[PartCheck], is_stream: bool = False) -> None:
    """Raises Broken that names them, and what to do. They are left as they are: what they hold may be all there is."""
    if not damaged:
        return
    named = "; ".join(f"{check.name} {check.why}" for check in damaged[:_NAMED])
    more = f"; and {len(damaged) - _NAMED:,} more" if len(damaged) > _NAMED else ""
    if is_stream:  # its rows may be gone from the source
        them = "it" if len(damaged) == 1 else "them"
        advice = f"restore {them} from a backup, or start the stream again with another output folder"
        raise Broken(f"{folder}/{named}{more}: {advice}")
    them, what = ("this part", "its shard is") if len(damaged) == 1 else ("these parts", "their shards are")
    see = f" `twoshift verify {folder}` lists all damaged parts." if more else ""
    raise Broken(f"{folder}: {named}{more}. Delete {them} and run the same command again: only {what} recomputed.{see}")


def _name(plan: Plan, shard: int) -> str:
    return part_location(plan, shard).rpartition("/")[2]


def resized(size: int, wanted: int) -> str:
    """What is said of a part whose size is not what it was."""
    return f"has {size:,} bytes, but {wanted:,} bytes were written"


def _checked(output: Blobs, plan: Plan, shard: int, listing: Listing) -> PartCheck:
    location, name = part_location(plan, shard), _name(plan, shard)
    seals = listing.seals_of(name)
    try:
        if not seals:
            return _counted(output, plan, shard)
        with output.open(location) as file:
            seal = seal_of(file)
        if seal not in seals:
            wanted = {each.size_bytes for each in seals}
            why = (
                "is damaged: its checksum differs from the recorded checksum"
                if seal.size_bytes in wanted
                else resized(seal[0], max(wanted))
            )
            return PartCheck(name, PartState.DAMAGED, why)
        stats = read_record(output, location, seal) or _stats(output, plan, shard)
    except (OSError, Broken, InvalidInput) as error:
        return PartCheck(name, PartState.DAMAGED, f"cannot be read ({error})")
    return _with_rows(plan, shard, name, PartState.VERIFIED, stats)


def _counted(output: Blobs, plan: Plan, shard: int) -> PartCheck:
    return _with_rows(plan, shard, _name(plan, shard), PartState.COUNTED, _stats(output, plan, shard))


def _stats(output: Blobs, plan: Plan, shard: int) -> PartStats:
    location = part_location(plan, shard)
    with output.open(location) as file:
        return read_stats(file, location, plan.settings.output_format)


def _with_rows(plan: Plan, shard: int, name: str, state: PartState, stats: PartStats) -> PartCheck:
    rows = plan.shard_rows(shard)
    if stats.shard != shard:
        return PartCheck(name, PartState.DAMAGED, f"contains the output of another shard (shard {stats.shard})")
    if rows is not None and stats.rows != rows:
        return PartCheck(name, PartState.DAMAGED, f"has {stats.rows:,} rows, but its shard has {rows:,} rows")
    return PartCheck(name, state, stats=stats)
