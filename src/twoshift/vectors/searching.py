"""The current generation of an index, open for searches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from twoshift.config import home
from twoshift.decodable import decodable
from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.ports import Blobs
from twoshift.vectors.generations import Generation, Pointer, current, files_location, read_generation
from twoshift.vectors.keys import Keys
from twoshift.vectors.known import LIBRARIES
from twoshift.vectors.library import RESTORE, IndexShape, Searcher, Vectors

__all__ = ["Hit", "OpenIndex", "index_note_location", "index_of", "open_current", "write_index_note"]

_TRIES = 3  # a generation may be replaced, and deleted, while it is opened
BlobsFor = Callable[[str], Blobs]


class Hit(NamedTuple):
    """A row that was found; a larger score is better."""

    key: Any
    score: float


@decodable
class IndexNote(msgspec.Struct, frozen=True):
    """In a job's output folder: where its index is, below that folder or anywhere."""

    index: str


class OpenIndex:
    """One generation; any thread may ask it."""

    def __init__(self, generation: Generation, pointer: Pointer, folder: Path) -> None:
        self.generation, self.pointer = generation, pointer
        shape = IndexShape(generation.metric, generation.dims)
        self._searcher: Searcher = LIBRARIES[generation.library].open(folder, shape)
        self._keys = Keys(folder)

    def check_model(self, model: str, checksum: str) -> None:
        """Raises InvalidInput where the vectors of the index are another model's."""
        if checksum != self.generation.checksum:
            made = f"{self.generation.model} with the checksum {self.generation.checksum}"
            accepted = f"the model that the index was built with, {made}; this model has the checksum {checksum}"
            raise InvalidInput("model", model, accepted)

    def search(self, vectors: Vectors, most: int) -> list[list[Hit]]:
        """For each vector the nearest rows, at most so many; raises InvalidInput where it has other dimensions."""
        dims, rows = self.generation.dims, self.generation.rows
        if vectors.shape[1:] != (dims,):
            accepted = f"a model whose vectors have {dims} dimensions, as in the index"
            raise InvalidInput("model", f"vectors of {vectors.shape[-1]} dimensions", accepted)
        if not rows:
            return [[] for _ in vectors]
        queries = np.ascontiguousarray(vectors, np.float32)
        if self.generation.metric == "cos":
            queries = queries / np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-12)
        found = self._searcher.search(queries, min(most, rows), max(self.pointer.effort, most))
        return [self._hits(places, scores) for places, scores in zip(*found, strict=True)]

    def _hits(self, places: Any, scores: Any) -> list[Hit]:
        is_there = places >= 0
        keys = self._keys.at(places[is_there])
        return [Hit(key, float(score)) for key, score in zip(keys, scores[is_there], strict=True)]


def index_note_location(output: str) -> str:
    """Where a job says which index is its own."""
    return f"{output.rstrip('/')}/_twoshift/index.json"


def write_index_note(blobs: Blobs, output: str, index: str) -> None:
    """Relative to the output folder, which may be moved, where it is inside; else its whole name."""
    below = f"{output.rstrip('/')}/"
    named = index.removeprefix(below)
    if named == index and "://" not in index:
        named = str(Path(index).absolute())
    blobs.write(index_note_location(output), msgspec.json.encode(IndexNote(named)))


def index_of(blobs: Blobs, location: str) -> str:
    """The index at a location: itself, or that of a job's output folder; raises NotFound."""
    folder = location.rstrip("/")
    if current(blobs, folder) is not None:
        return folder
    data = blobs.read(index_note_location(folder))
    if data is None:
        accepted = "an index, or the output folder of a job that was run with --index"
        raise NotFound("index", location, accepted)
    try:
        index = msgspec.json.decode(data, type=IndexNote).index
    except msgspec.DecodeError as error:
        raise Broken(f"{index_note_location(folder)} is damaged ({error}): {RESTORE}") from error
    return index if "://" in index or index.startswith("/") else f"{folder}/{index}"


def open_current(blobs_for: BlobsFor, location: str, besides: Pointer | None = None) -> OpenIndex | None:
    """The current generation; None where it is that of `besides`. Raises NotFound where there is none yet."""
    for left in reversed(range(_TRIES)):
        index = index_of(blobs_for(location), location)
        blobs = blobs_for(index)
        pointer = current(blobs, index)
        if pointer is None:
            raise NotFound("index", location, "a complete index: the job that builds this index has not ended yet")
        if pointer == besides:
            return None
        try:
            return _opened(blobs, index, pointer)
        except (Broken, InvalidInput, OSError):
            if not left or current(blobs, index) == pointer:
                raise
    raise AssertionError("unreachable")


def _opened(blobs: Blobs, index: str, pointer: Pointer) -> OpenIndex:
    generation = read_generation(blobs, index, pointer.generation)
    if generation is None:
        raise Broken(f"the generation {pointer.generation} of the index {index} has no manifest file: {RESTORE}")
    return OpenIndex(generation, pointer, _local(blobs, index, generation))


def _local(blobs: Blobs, index: str, generation: Generation) -> Path:
    """The folder of its files on this machine, whole; fetched where they lie elsewhere."""
    places = {name: Path(files_location(index, generation.name, name)) for name in generation.files}
    if "://" in index:
        cache = home() / "indexes" / generation.name
        places = {name: cache / name for name in generation.files}
        for name, path in places.items():
            if not path.exists() or path.stat().st_size != generation.files[name]:
                _fetch(blobs, files_location(index, generation.name, name), path)
    for name, path in places.items():
        size = path.stat().st_size if path.exists() else None
        if size != generation.files[name]:  # what is cut short must not be mapped
            found = "is missing" if size is None else f"has {size:,} bytes, expected {generation.files[name]:,}"
            raise Broken(f"{path} {found}: {RESTORE}")
    attempt = next(iter(places)).partition("/")[0]
    first = next(iter(places.values()))
    return next(parent for parent in first.parents if parent.name == attempt)


def _fetch(blobs: Blobs, location: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.twoshift-tmp")
    with blobs.open(location) as source, beside.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    beside.replace(path)
