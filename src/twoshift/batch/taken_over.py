"""Parts of an earlier job that have no errors, published in the folder of the job that retries the others."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from twoshift.batch.part_records import list_output, read_record, write_record
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.sinks.known import read_stats
from twoshift.errors import Broken
from twoshift.ports import Blobs

__all__ = ["take_over"]


def take_over(earlier: Plan, plan: Plan, shards: Iterable[int], blobs_for: Callable[[str], Blobs]) -> None:
    """Publish these of the earlier job's parts, without errors; a link where both lie on this machine's disks."""
    blobs, output = blobs_for(earlier.settings.output), blobs_for(plan.settings.output)
    listing = list_output(blobs, earlier.settings.output)
    for shard in shards:
        location, target = part_location(earlier, shard), part_location(plan, shard)
        with blobs.open(location) as file:
            if _has_errors(file, location, plan.settings.output_format):
                continue
            for seal in listing.seals_of(Path(location).name):  # what is damaged is found before the end
                if (stats := read_record(blobs, location, seal)) is not None:
                    write_record(output, target, seal, stats)
            staged = output.staging(target) / f"{Path(target).name}.{uuid.uuid4().hex}"
            try:
                os.link(location, staged)
            except OSError:  # another disk, or no disk at all
                file.seek(0)
                with staged.open("wb") as copy:
                    shutil.copyfileobj(file, copy)
        output.publish(staged, target)


def _has_errors(part: BinaryIO, location: str, output_format: str) -> bool:
    """Whether a shard is to be done again; one whose part is damaged is."""
    try:
        return read_stats(part, location, output_format).errors > 0
    except Broken:
        return True
