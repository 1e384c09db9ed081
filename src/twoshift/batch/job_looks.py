"""What can be said of a job without running it: what its input holds, what failed, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from twoshift.batch.allowance import Allowance
from twoshift.batch.claimed_jobs import ClaimedJobs
from twoshift.batch.hosted import HostedKind
from twoshift.batch.inputs import InputFile, ShardTarget, cut, kept_schema, read, resolve
from twoshift.batch.inputs.file import known_encoding
from twoshift.batch.part_records import list_output, read_record
from twoshift.batch.part_stats import FailedRow
from twoshift.batch_ports import InputColumn, InputLook, JobFailures
from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.ports import Blobs
from twoshift.types import JobKindName

__all__ = ["JobLooks"]

_MOST_RECORDS, _MOST_ROWS, _MOST_FILES = 2000, 50, 200
_SAMPLE_ROWS, _SAMPLE_BYTES = 2000, 1 << 20
_LARGE = ShardTarget(1 << 40)


class JobLooks:
    """Any thread may call it."""

    def __init__(
        self,
        jobs: ClaimedJobs,
        kinds: Mapping[JobKindName, HostedKind],
        allowance_of: Callable[[str], Allowance],  # by owner
    ) -> None:
        self._jobs, self._kinds, self._allowance_of = jobs, kinds, allowance_of

    def look(self, inputs: Sequence[str], input_format: str | None, owner: str) -> InputLook:
        """What an input holds, if the owner may read it; raises InvalidInput."""
        blobs_for = self._allowance_of(owner).blobs_for
        try:
            files = resolve(inputs, blobs_for, input_format)
            columns = kept_schema(files, blobs_for, None)
            counted = [piece.rows for shard in cut(files, blobs_for, _LARGE) for piece in shard]
        except Broken as error:  # damaged, or replaced just now
            raise InvalidInput("inputs", ", ".join(inputs), f"files that can be read ({error})") from error
        size_bytes, is_exact = sum(file.size_bytes for file in files), None not in counted
        rows = sum(each for each in counted if each is not None)
        if not is_exact:
            rows = round(size_bytes / max(1.0, _row_bytes(files[0], blobs_for(files[0].location))))
        shown = [InputColumn(each.name, str(each.type)) for each in columns]
        return InputLook(files=len(files), size_bytes=size_bytes, rows=rows, is_exact=is_exact, columns=shown)

    def files_below(self, roots: Sequence[str], owner: str) -> list[str]:
        """Files of known formats in some folders, as far as the owner may read them: the first of them."""
        found = list[str]()
        for root in roots:
            with suppress(NotFound, InvalidInput):
                listed = self._allowance_of(owner).blobs_for(root).list(root)
                found += [each.location for each in listed if _may_be_input(each.location, root)]
        return found[:_MOST_FILES]

    def failures(self, job_id: str) -> JobFailures:
        """Which rows of it have no result, and why; raises NotFound."""
        return _failures_in(*self._output(job_id))

    def report(self, job_id: str) -> bytes | None:
        """The page that its last run has left; None before that. Raises NotFound."""
        output, folder = self._output(job_id)
        return output.read(f"{folder.rstrip('/')}/_twoshift/report.html")

    def _output(self, job_id: str) -> tuple[Blobs, str]:
        record = self._jobs.store.get(job_id)
        folder = str(record.settings["output"])
        return self._kinds[record.kind].blobs_for(record.owner)(folder), folder


def _row_bytes(file: InputFile, blobs: Blobs) -> float:
    """Of the first rows; those of a compressed file are larger than what they take in it."""
    for batch in read(file.head(), file, blobs, None, _SAMPLE_ROWS, _SAMPLE_BYTES):
        return batch.nbytes / max(1, batch.num_rows)
    return float(file.size_bytes)


def _may_be_input(location: str, root: str) -> bool:
    parts = location.removeprefix(root).split("/")
    return known_encoding(parts[-1]) is not None and not any(part.startswith(("_", ".")) for part in parts)


def _failures_in(output: Blobs, folder: str) -> JobFailures:
    """Errors by kind, and the first rows of them, of the parts that are committed."""
    listing = list_output(output, folder)
    kinds, failed, seen = Counter[str](), list[FailedRow](), 0
    names = [name for name in sorted(listing.sizes) if listing.seals_of(name)]
    for name in names[:_MOST_RECORDS]:
        fitting = [seal for seal in listing.seals_of(name) if seal.size_bytes == listing.sizes[name]]
        stats = read_record(output, f"{folder.rstrip('/')}/{name}", fitting[0]) if fitting else None
        if stats is not None:
            seen += 1
            kinds.update(stats.kinds)
            failed += stats.failed[: max(0, _MOST_ROWS - len(failed))]
    rows = [(each.row, each.error) for each in failed]
    return JobFailures(kinds=dict(kinds), rows=rows, parts=len(names), parts_read=seen)
