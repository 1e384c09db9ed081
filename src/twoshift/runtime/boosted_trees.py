"""What boosted trees of every library share: one matrix of numbers in, one prediction a row out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, UnusableModel, first_line
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_bytes, full_file
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.devices import cpu_only
from twoshift.runtime.features import FEATURES, Features
from twoshift.runtime.threaded_model import ThreadedModel, Threads
from twoshift.types import Tensor

__all__ = ["BoostedTrees", "booster_bytes", "trees_runtime"]

_PRECISIONS = {"float32": "fp32", "float64": "fp64"}


class BoostedTrees(ABC):
    """A booster as a column model; an absent number is NaN, which its trees take. No names: the features are a list."""

    dtype = "float32"
    trial = np.nan  # the value of every feature in the first call

    def __init__(self, names: Sequence[str] | None, width: int, threads: int) -> None:
        self.width, self.threads, self.is_ordered = width, threads, not names
        self.names, self.classes = tuple(names or ()), tuple[str, ...]()  # classes: of its vectors of probabilities
        self._features = Features(names, width, missing=True, dtype=self.dtype)

    @abstractmethod
    def values(self, matrix: NDArray[Any]) -> Any:
        """What it predicts for at least one row."""

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return self._features.prepare(rows)

    def use_threads(self, threads: int) -> None:
        self.threads = threads

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        matrix = columns[FEATURES]
        found = self.values(matrix if len(matrix) else np.zeros((1, self.width), self.dtype))
        return {"prediction": np.asarray(found)[: len(matrix)]}


def booster_bytes(path: Path, library: str, device: str, precision: str | None, has: str) -> bytes:
    """The whole file; raises InvalidInput for a device or a precision that the library does not have."""
    cpu_only(device, f"{'an' if library[0] in 'AEIOUX' else 'a'} {library} model")
    if precision not in (None, has):
        raise InvalidInput("precision", precision, f"{has}: {library} has no other precision")
    return full_file(path).read_bytes()


def trees_runtime(
    path: Path, library: str, module: Any, data: bytes, used: Threads, load: Callable[[], BoostedTrees]
) -> ThreadedModel:
    """The model that `load` makes of the file, once it has predicted a row; raises Broken where it cannot."""
    try:
        model = load()
        model.values(np.full((1, model.width), model.trial, model.dtype))  # some damage shows only in a call
    except UnusableModel:
        raise
    except Exception as error:  # what it raises depends on where it stumbles
        raise Broken(f"{path}: {library} {module.__version__} cannot read the file: {first_line(error)}") from error
    info = RuntimeInfo(
        model=str(path),
        checksum=checksum_of_bytes(data),
        runtime=library.lower(),
        device=used.device,
        precision=_PRECISIONS[model.dtype],
        max_row_tokens=1,
        outputs=("prediction",),
        inputs=(Tensor(FEATURES, model.dtype, (model.width,)),),
        example=[0.0] * model.width,
        is_ordered=model.is_ordered,
        features=model.names,
        classes={"prediction": model.classes} if model.classes else {},
    )
    return ThreadedModel(info, model, used)
