"""The keys of an index's vectors, by place, in a file that is mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Keys", "write_keys"]

_FILE = "keys.arrow"


def write_keys(keys: pa.Array, folder: Path) -> None:
    """In one piece, so that a key is found without a search."""
    batch = pa.record_batch([keys], names=["key"])
    with (folder / _FILE).open("wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


class Keys:
    """Any thread may ask."""

    def __init__(self, folder: Path) -> None:
        self._file = pa.memory_map(str(folder / _FILE))
        self._keys = pa.ipc.open_file(self._file).get_batch(0).column(0)

    def at(self, places: NDArray[np.int64]) -> list[Any]:
        """Of these places, all of which are there."""
        return self._keys.take(pa.array(places)).to_pylist()
