"""CatBoost models, saved with `save_model` as .cbm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from twoshift.errors import Broken, UnusableModel
from twoshift.extras import needed
from twoshift.runtime.boosted_trees import BoostedTrees, booster_bytes, trees_runtime
from twoshift.runtime.threaded_model import ThreadedModel, Threads

__all__ = ["load_catboost"]

_MAGIC = b"CBM1"


def load_catboost(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> ThreadedModel:
    """A model on the CPU: probabilities of a classifier's classes, or a regression's value."""
    data = booster_bytes(path, "CatBoost", device, precision, "fp32")
    if not data.startswith(_MAGIC):
        raise Broken(f"{path} is not a valid CatBoost model (saved with save_model): the file does not begin with CBM1")
    if len(data) != 8 + int.from_bytes(data[4:8], "little"):
        raise Broken(
            f"{path} is truncated or damaged: the file has {len(data):,} bytes, but its header says another size; "
            "copy the file again"
        )
    used = Threads(threads)
    catboost = needed("catboost", "catboost", str(path))

    def load() -> BoostedTrees:
        model = _loaded(catboost, data)
        _check_numbers(model, path)
        return _Trees(model, used.most)

    return trees_runtime(path, "CatBoost", catboost, data, used, load)


def _loaded(catboost: Any, data: bytes) -> Any:
    """As the class that trained it, which knows what it predicts."""
    plain = catboost.CatBoost()
    plain.load_model(blob=data)
    kind = catboost.CatBoostClassifier if len(plain.classes_) else catboost.CatBoostRegressor
    model = kind(loss_function=plain.get_all_params().get("loss_function"))  # which decides what a value means
    model.load_model(blob=data)
    return model


def _check_numbers(model: Any, path: Path) -> None:
    others = [
        model.feature_names_[number]
        for indices in (model.get_cat_feature_indices, model.get_text_feature_indices)
        for number in indices()
    ]
    if others:
        names = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        told = f"has features that are not numbers ({names}); wrap the model in your own Python class: file.py:Class"
        raise UnusableModel("model", str(path), told)


class _Trees(BoostedTrees):
    trial = 0.0  # one may be told to refuse NaN

    def __init__(self, model: Any, threads: int) -> None:
        self._predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
        names = list(model.feature_names_)
        is_ordered = names == [str(number) for number in range(len(names))]  # which are made up
        super().__init__(None if is_ordered else names, len(names), threads)
        self.classes = tuple(map(str, model.classes_)) if hasattr(model, "predict_proba") else ()

    def values(self, matrix: NDArray[Any]) -> Any:
        return self._predict(matrix, thread_count=self.threads)
