"""XGBoost boosters, saved with `save_model` as .json or .ubj."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from twoshift.errors import Broken
from twoshift.extras import needed
from twoshift.runtime.boosted_trees import BoostedTrees, booster_bytes, trees_runtime
from twoshift.runtime.threaded_model import ThreadedModel, Threads
from twoshift.runtime.xgboost_file import DamagedModel, check_xgboost_file

__all__ = ["load_xgboost"]


def load_xgboost(
    path: Path, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> ThreadedModel:
    """A booster on the CPU; its features by name where it has names, else one list under `features`."""
    data = booster_bytes(path, "XGBoost", device, precision, "fp32")
    _check(data, path)
    used = Threads(threads)
    xgboost = needed("xgboost", "xgboost", str(path))

    def load() -> BoostedTrees:
        booster = xgboost.Booster(params={"nthread": used.most, "verbosity": 0})
        booster.load_model(bytearray(data))  # what was checked, not what the file may hold by now
        return _Trees(booster, xgboost, used.most)

    return trees_runtime(path, "XGBoost", xgboost, data, used, load)


class _Trees(BoostedTrees):
    def __init__(self, booster: Any, xgboost: Any, threads: int) -> None:
        super().__init__(booster.feature_names, int(booster.num_features()), threads)
        self._booster, self._xgboost = booster, xgboost
        learner = json.loads(booster.save_config())["learner"]
        self._linear = learner["gradient_booster"]["name"] == "gblinear"
        if learner["objective"]["name"] == "multi:softprob":
            self.classes = tuple(map(str, range(int(learner["learner_model_param"]["num_class"]))))
        self._range = (0, 0) if self._linear else _rounds(booster)

    def use_threads(self, threads: int) -> None:
        if threads != self.threads:  # the next call sets itself up again, which takes as long as a small one
            self._booster.set_param({"nthread": threads})
            self.threads = threads

    def values(self, matrix: NDArray[Any]) -> Any:
        if self._linear:  # the one booster without an in-place path
            data = self._xgboost.DMatrix(matrix, nthread=self.threads)
            return self._booster.predict(data, validate_features=False)
        return self._booster.inplace_predict(matrix, iteration_range=self._range, validate_features=False)


def _rounds(booster: Any) -> tuple[int, int]:
    """All rounds, as Booster.predict; up to the best one where XGBClassifier and its like saved it, as they predict."""
    best, rounds = booster.attr("best_iteration"), booster.num_boosted_rounds()
    if best is None or booster.attr("scikit_learn") is None:
        return (0, 0)
    if best not in map(str, range(rounds)):
        raise DamagedModel(f"the model's best_iteration is {best[:80]!r}; expected a round from 0 to {rounds - 1}")
    return (0, int(best) + 1)


def _check(data: bytes, path: Path) -> None:
    try:
        check_xgboost_file(data)
    except DamagedModel as error:
        hint = "; for a Hugging Face model, use the path of the folder" if path.name == "config.json" else ""
        raise Broken(f"{path} is not a valid XGBoost model (saved with save_model): {error}{hint}") from error
