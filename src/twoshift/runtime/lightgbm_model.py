"""LightGBM boosters, saved with `save_model` as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from twoshift.errors import UnusableModel
from twoshift.extras import needed
from twoshift.runtime.boosted_trees import BoostedTrees, booster_bytes, trees_runtime
from twoshift.runtime.lightgbm_file import check_lightgbm_file
from twoshift.runtime.threaded_model import ThreadedModel, Threads

__all__ = ["load_lightgbm"]


def load_lightgbm(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> ThreadedModel:
    """A booster on the CPU; its features by name where it has names, else one list under `features`."""
    data = booster_bytes(path, "LightGBM", device, precision, "fp64")
    check_lightgbm_file(data, path)
    used = Threads(threads)
    lightgbm = needed("lightgbm", "lightgbm", str(path))

    def load() -> BoostedTrees:
        booster = lightgbm.Booster(model_str=data.decode())  # what was checked, not what the file may hold by now
        if booster.pandas_categorical:
            told = "was trained on pandas categories, which are not supported"
            todo = "train the model on numbers, or wrap the model in a Python class: file.py:Class"
            raise UnusableModel("model", str(path), f"{told}; {todo}")
        return _Trees(booster, used.most)

    return trees_runtime(path, "LightGBM", lightgbm, data, used, load)


class _Trees(BoostedTrees):
    dtype = "float64"

    def __init__(self, booster: Any, threads: int) -> None:
        self._booster = booster
        names, width = booster.feature_name(), int(booster.num_feature())
        is_ordered = names == [f"Column_{number}" for number in range(width)]  # which are made up
        super().__init__(None if is_ordered else names, width, threads)
        per_round = int(booster.num_model_per_iteration())  # a tree for each class
        self.classes = tuple(map(str, range(per_round))) if per_round > 1 else ()

    def values(self, matrix: NDArray[Any]) -> Any:
        return self._booster.predict(matrix, num_threads=self.threads, validate_features=False)
