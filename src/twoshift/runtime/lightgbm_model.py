"""LightGBM boosters, saved with `save_model` as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, UnusableModel
from twoshift.extras import needed
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_bytes, full_file
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.devices import cpu_only
from twoshift.runtime.features import FEATURES, Features
from twoshift.runtime.lightgbm_file import check_lightgbm_file
from twoshift.runtime.threaded_model import ThreadedModel, Threads
from twoshift.types import Tensor

__all__ = ["load_lightgbm"]


def load_lightgbm(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> ThreadedModel:
    """A booster on the CPU; its features by name where it has names, else one list under `features`."""
    cpu_only(device, "a LightGBM model")
    if precision not in (None, "fp64"):
        raise InvalidInput("precision", precision, "fp64: LightGBM has no other precision")
    data = full_file(path).read_bytes()
    check_lightgbm_file(data, path)
    used = Threads(threads)
    lightgbm = needed("lightgbm", "lightgbm", str(path))
    try:
        booster = lightgbm.Booster(model_str=data.decode())  # what was checked, not what the file may hold by now
        model = _Boosted(booster, used.most)
        model.predict({FEATURES: np.full((1, model.width), np.nan)})  # some damage shows only in a call
    except Exception as error:  # what it raises depends on where it stumbles
        line = str(error).strip().partition("\n")[0][:300]
        raise Broken(f"{path}: LightGBM {lightgbm.__version__} cannot read the file: {line}") from error
    if booster.pandas_categorical:
        told = "was trained on pandas categories, which are not supported; train it on numbers, or wrap it in a "
        raise UnusableModel("model", str(path), f"{told}class of your own: file.py:Class")
    info = RuntimeInfo(
        model=str(path),
        checksum=checksum_of_bytes(data),
        runtime="lightgbm",
        device=used.device,
        precision="fp64",
        max_row_tokens=1,
        outputs=("prediction",),
        inputs=(Tensor(FEATURES, "float64", (model.width,)),),
        example=[0.0] * model.width,
        is_ordered=model.is_ordered,
    )
    return ThreadedModel(info, model, used)


class _Boosted:
    """A booster as a column model; an absent number is NaN, which its trees were trained to take."""

    def __init__(self, booster: Any, threads: int) -> None:
        self._booster, self._threads = booster, threads
        self.width = int(booster.num_feature())
        names = booster.feature_name()
        self.is_ordered = names == [f"Column_{number}" for number in range(self.width)]  # which are made up
        self._features = Features(None if self.is_ordered else names, self.width, missing=True, dtype=np.float64)

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return self._features.prepare(rows)

    def use_threads(self, threads: int) -> None:
        self._threads = threads

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        matrix = columns[FEATURES]
        if not len(matrix):
            matrix = np.zeros((1, self.width))
        found = self._booster.predict(matrix, num_threads=self._threads, validate_features=False)
        return {"prediction": np.asarray(found)[: len(columns[FEATURES])]}
