"""XGBoost boosters, saved with `save_model` as .json or .ubj."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_bytes, full_file
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.devices import cpu_only
from twoshift.runtime.features import FEATURES, Features
from twoshift.runtime.threaded_model import ThreadedModel, Threads
from twoshift.runtime.xgboost_file import DamagedModel, check_xgboost_file
from twoshift.types import Tensor

__all__ = ["load_xgboost"]


def load_xgboost(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> ThreadedModel:
    """A booster on the CPU; its features by name where it has names, else one list under `features`."""
    cpu_only(device, "an XGBoost model")
    if precision not in (None, "fp32"):
        raise InvalidInput("precision", precision, "fp32: XGBoost has no other precision")
    data = full_file(path).read_bytes()
    _check(data, path)
    used = Threads(threads)
    xgboost = needed("xgboost", "xgboost", str(path))
    booster = xgboost.Booster(params={"nthread": used.most, "verbosity": 0})
    try:
        booster.load_model(bytearray(data))  # what was checked, not what the file may hold by now
        model = _Boosted(booster, xgboost, used.most)
        model.try_it()
    except Exception as error:  # what it raises depends on where it stumbles
        raise Broken(f"{path}: XGBoost {xgboost.__version__} cannot read the file: {_first_line(error)}") from error
    info = RuntimeInfo(
        model=str(path),
        checksum=checksum_of_bytes(data),
        runtime="xgboost",
        device=used.device,
        precision="fp32",
        max_row_tokens=1,
        outputs=("prediction",),
        inputs=model.inputs,
        example=model.example,
        is_ordered=not booster.feature_names,
    )
    return ThreadedModel(info, model, used)


class _Boosted:
    """A booster as a column model; an absent number is NaN, which its trees were trained to take."""

    def __init__(self, booster: Any, xgboost: Any, threads: int) -> None:
        self._booster, self._xgboost, self._threads = booster, xgboost, threads
        self._width = int(booster.num_features())
        self._features = Features(booster.feature_names, self._width, missing=True, dtype=np.float32)
        self.inputs = (Tensor(FEATURES, "float32", (self._width,)),)
        self.example = [0.0] * self._width
        self._linear = '"name":"gblinear"' in booster.save_config().replace(" ", "")
        self._range = (0, 0) if self._linear else _rounds(booster)

    def try_it(self) -> None:
        """One row without any value: some damage shows only in a call."""
        self.predict({FEATURES: np.full((1, self._width), np.nan, np.float32)})

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return self._features.prepare(rows)

    def use_threads(self, threads: int) -> None:
        if threads != self._threads:  # the next call sets itself up again, which takes as long as a small one
            self._booster.set_param({"nthread": threads})
            self._threads = threads

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        matrix = columns[FEATURES]
        if self._linear:  # the one booster without an in-place path
            data = self._xgboost.DMatrix(matrix, nthread=self._threads)
            return {"prediction": self._booster.predict(data, validate_features=False)}
        return {
            "prediction": self._booster.inplace_predict(matrix, iteration_range=self._range, validate_features=False)
        }


def _rounds(booster: Any) -> tuple[int, int]:
    """All rounds, as Booster.predict; up to the best one where XGBClassifier and its like saved it, as they predict."""
    best, rounds = booster.attr("best_iteration"), booster.num_boosted_rounds()
    if best is None or booster.attr("scikit_learn") is None:
        return (0, 0)
    if best not in map(str, range(rounds)):
        raise DamagedModel(f"the model's best_iteration is {best[:80]!r}; expected one of its {rounds} rounds, from 0")
    return (0, int(best) + 1)


def _check(data: bytes, path: Path) -> None:
    try:
        check_xgboost_file(data)
    except DamagedModel as error:
        hint = "; for a Hugging Face model, use the path of the folder" if path.name == "config.json" else ""
        raise Broken(f"{path}: expected a model that XGBoost saved with save_model: {error}{hint}") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
