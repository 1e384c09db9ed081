"""CatBoost models, saved with `save_model` as .cbm."""

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
from twoshift.runtime.threaded_model import ThreadedModel, Threads
from twoshift.types import Tensor

__all__ = ["load_catboost"]

_MAGIC = b"CBM1"


def load_catboost(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> ThreadedModel:
    """A model on the CPU: probabilities of a classifier's classes, or a regression's value."""
    cpu_only(device, "a CatBoost model")
    if precision not in (None, "fp32"):
        raise InvalidInput("precision", precision, "fp32: CatBoost has no other precision")
    data = full_file(path).read_bytes()
    if not data.startswith(_MAGIC):
        raise Broken(f"{path}: expected a model that CatBoost saved with save_model: the file does not begin with CBM1")
    if len(data) != 8 + int.from_bytes(data[4:8], "little"):
        raise Broken(
            f"{path}: the file has {len(data)} bytes, fewer than its header says, so the file is truncated: "
            "copy it again"
        )
    used = Threads(threads)
    catboost = needed("catboost", "catboost", str(path))
    try:
        model = _Boosted(_loaded(catboost, data), used.most)
        _check_numbers(model, path)
        model.predict({FEATURES: np.zeros((1, model.width), np.float32)})  # some damage shows only in a call
    except UnusableModel:
        raise
    except Exception as error:  # what it raises depends on where it stumbles
        line = str(error).strip().partition("\n")[0][:300]
        raise Broken(f"{path}: CatBoost {catboost.__version__} cannot read the file: {line}") from error
    info = RuntimeInfo(
        model=str(path),
        checksum=checksum_of_bytes(data),
        runtime="catboost",
        device=used.device,
        precision="fp32",
        max_row_tokens=1,
        outputs=("prediction",),
        inputs=(Tensor(FEATURES, "float32", (model.width,)),),
        example=[0.0] * model.width,
        is_ordered=model.is_ordered,
    )
    return ThreadedModel(info, model, used)


def _loaded(catboost: Any, data: bytes) -> Any:
    """As the class that trained it, which knows what it predicts."""
    plain = catboost.CatBoost()
    plain.load_model(blob=data)
    kind = catboost.CatBoostClassifier if len(plain.classes_) else catboost.CatBoostRegressor
    model = kind(loss_function=plain.get_all_params().get("loss_function"))  # which decides what a value means
    model.load_model(blob=data)
    return model


def _check_numbers(model: _Boosted, path: Path) -> None:
    if model.others:
        names = ", ".join(model.others[:3]) + (", ..." if len(model.others) > 3 else "")
        told = f"has features that are not numbers ({names}); wrap the model in your own Python class: file.py:Class"
        raise UnusableModel("model", str(path), told)


class _Boosted:
    """A model as a column model; an absent number is NaN, which its trees take."""

    def __init__(self, model: Any, threads: int) -> None:
        self._threads = threads
        self._predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
        names = list(model.feature_names_)
        self.width = len(names)
        self.others = [
            names[number]
            for indices in (model.get_cat_feature_indices, model.get_text_feature_indices)
            for number in indices()
        ]
        self.is_ordered = names == [str(number) for number in range(self.width)]  # which are made up
        self._features = Features(None if self.is_ordered else names, self.width, missing=True, dtype=np.float32)

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return self._features.prepare(rows)

    def use_threads(self, threads: int) -> None:
        self._threads = threads

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        matrix = columns[FEATURES]
        if not len(matrix):
            matrix = np.zeros((1, self.width), np.float32)
        return {"prediction": np.asarray(self._predict(matrix, thread_count=self._threads))[: len(columns[FEATURES])]}
