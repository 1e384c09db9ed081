"""A generation from a job's pieces: built beside the others, measured, and committed by its manifest."""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from twoshift.errors import InvalidInput, TryLater
from twoshift.ports import Blobs
from twoshift.vectors.generations import Generation, files_location, manifest_location, read_generation
from twoshift.vectors.keys import write_keys
from twoshift.vectors.known import LIBRARIES
from twoshift.vectors.library import IndexShape
from twoshift.vectors.pieces import PieceSet
from twoshift.vectors.recall import measured_recall

__all__ = ["BuildTask", "build_generation", "check_memory"]

_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class BuildTask:
    """What a generation is built for."""

    index: str  # its location
    name: str  # of the generation: the same for whoever builds it
    library: str
    shape: IndexShape
    key: str | None
    model: str
    checksum: str
    precision: str
    output: str


def build_generation(
    blobs: Blobs, task: BuildTask, pieces: Callable[[Path], Sequence[Path]], tell: Callable[[str], None]
) -> Generation:
    """The generation of that name, which may be there already; raises TryLater where a disk is full.

    `pieces` is given a folder for what it has to make or fetch, and gives the files of all pieces in order.
    """
    found = read_generation(blobs, task.index, task.name)
    _sweep(blobs, task, is_committed=found is not None)
    if found is not None:
        return found
    with _staging(blobs, task) as folder, _full_disk_told(task.index):
        began_s, made = time.monotonic(), folder / "index"
        made.mkdir()
        tell("Collecting the vectors")
        vectors = PieceSet.read(pieces(folder), task.shape.dims, task.shape.metric)
        check_memory(task.index, task.library, vectors.count, task.shape.dims)
        library = LIBRARIES[task.library]
        for done in library.build(vectors, task.shape, made):
            tell(f"Building the index: {done:,} of {vectors.count:,} vectors")
        build_s = time.monotonic() - began_s
        write_keys(vectors.keys, made)
        tell("Measuring the recall of the index")
        sampled, recall = measured_recall(vectors, library.open(made, task.shape), task.shape, library.efforts)
        generation = Generation(
            name=task.name, library=task.library, metric=task.shape.metric, dims=task.shape.dims,
            rows=vectors.count, left_out=vectors.left_out, key=task.key,
            model=task.model, checksum=task.checksum, precision=task.precision, output=task.output,
            files={}, recall=recall, sampled=sampled, build_s=build_s,
            memory_bytes=library.memory_bytes(vectors.count, task.shape.dims),
        )  # fmt: skip
        return _committed(blobs, task, generation, made)


def check_memory(index: str, library: str, rows: int, dims: int) -> None:
    """Raises InvalidInput where building needs more memory than this machine has left."""
    needed, free = LIBRARIES[library].memory_bytes(rows, dims), _free_bytes()
    if free is not None and needed > free:
        accepted = (
            f"an index that fits into memory: {rows:,} vectors need about {needed / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB are free. Use a name that ends with .lance: such an index is built on disk"
        )
        raise InvalidInput("index", index, accepted)


def _committed(blobs: Blobs, task: BuildTask, generation: Generation, made: Path) -> Generation:
    """Its files first, under names of this attempt; its manifest last. Another's, where that was there before."""
    attempt = uuid.uuid4().hex[:8]
    staged = sorted(path for path in made.rglob("*") if path.is_file())
    sizes = {f"{attempt}/{path.relative_to(made).as_posix()}": path.stat().st_size for path in staged}
    for path, name in zip(staged, sizes, strict=True):
        blobs.publish(path, files_location(task.index, task.name, name))
    generation = msgspec.structs.replace(generation, files=sizes)
    manifest = msgspec.json.format(msgspec.json.encode(generation), indent=1)
    if blobs.create(manifest_location(task.index, task.name), manifest):
        return generation
    for name in sizes:
        blobs.delete(files_location(task.index, task.name, name))
    return read_generation(blobs, task.index, task.name) or generation


@contextlib.contextmanager
def _staging(blobs: Blobs, task: BuildTask) -> Iterator[Path]:
    """A folder of our own beside the generations."""
    folder = blobs.staging(f"{task.index}/index") / f"{task.name}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(blobs: Blobs, task: BuildTask, is_committed: bool) -> None:
    """What a build of this generation left that was killed. In a bucket another build may still be at work."""
    if "://" in task.index or "://" in task.output:
        return
    blobs.sweep(task.index)
    for left in blobs.staging(f"{task.index}/index").glob(f"{task.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    if not is_committed:
        shutil.rmtree(Path(files_location(task.index, task.name, "")), ignore_errors=True)


@contextlib.contextmanager
def _full_disk_told(index: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        full = (errno.ENOSPC, errno.EDQUOT)
        if getattr(error, "errno", None) in full or "space left" in str(error):
            raise TryLater(f"the disk of the index {index} is full: free some disk space", _DELAY_S) from error
        raise


def _free_bytes() -> int | None:
    """Memory that is left; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError), Path("/proc/meminfo").open() as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None
