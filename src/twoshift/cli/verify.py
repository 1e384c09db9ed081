"""`verify`: a job's results as they lie there, against what was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import show
from twoshift.cli.params import JsonFlag
from twoshift.cli.progress import progress_bar
from twoshift.units import counted

if TYPE_CHECKING:
    from twoshift.batch.verify import Verification

__all__ = ["verify_command"]

_NOT_DONE = 3  # as a run that was stopped: the same command goes on


@command(app, "verify", "twoshift verify out/")
def verify_command(
    output: Annotated[str, typer.Argument(help="Output folder of a job, local or in a bucket.")],
    as_json: JsonFlag = False,
) -> int:
    """Read every part of a job's output and compare it with its recorded checksum.

    The exit code is 0 if all parts are complete, 1 if parts are missing or damaged, and 3 if the job is not done yet.
    """
    from twoshift.wiring.job_workers import verify_job

    with progress_bar(f"Verifying {output}") as progress:
        found = verify_job(output, progress)
    show(as_json, _data(output, found), *_lines(output, found))
    if found.is_bad:
        return 1
    return _NOT_DONE if found.missing or not found.is_finished else 0


def _data(output: str, found: Verification) -> dict[str, object]:
    from twoshift.batch.verify import PartState

    stats = [check.stats for check in found.checks if check.stats is not None]
    return {
        "output": output,
        "finished": found.is_finished,
        "shards": found.shards,
        "verified": len(found.named(PartState.VERIFIED)),
        "not_verifiable": [check.name for check in found.named(PartState.COUNTED)],
        "damaged": [{"part": check.name, "why": check.why} for check in found.named(PartState.DAMAGED)],
        "missing": list(found.missing),
        "unexpected": list(found.unexpected),
        "rows": sum(each.rows for each in stats),
        "errors": sum(each.errors for each in stats),
    }


def _lines(output: str, found: Verification) -> Iterator[str]:
    from twoshift.batch.verify import PartState

    damaged, unsealed = found.named(PartState.DAMAGED), found.named(PartState.COUNTED)
    yield from (f"{check.name} {check.why}." for check in damaged)
    if found.is_finished:
        yield from (f"{name} is missing." for name in found.missing)
    yield from (f"{name} is not an output file of this job: move it to another folder." for name in found.unexpected)
    if damaged:
        yield "Delete the damaged files and run the job's command again: only their shards are computed again."
    elif found.is_finished and found.missing:
        yield "Run the job's command again: only the missing shards are computed."
    verified = len(found.named(PartState.VERIFIED))
    yield f"Verified {verified:,} of {counted(found.shards, 'part')} in {output}."
    if unsealed:
        yield (
            f"{counted(len(unsealed), 'part')} cannot be verified, because no checksum was recorded; only their "
            "rows were counted."
        )
    if not found.is_finished:
        yield "The job is not done: run the job's command again to continue."
