"""A call uses as many threads as its size was measured to want; its answers do not depend on that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.batch.settings import JobSettings
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.threads import ThreadPlan, ThreadStep
from twoshift.ports import Columns, ThreadedRuntime
from twoshift.serve.model_settings import ModelSettings
from twoshift.wiring.job_workers import open_job_device
from twoshift.wiring.model_loading import load_model, threads_of
from twoshift.wiring.served_models import served_model
from twoshift.wiring.stored_profiles import profile_of, profiles

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load
ROWS, WIDTH, MOST = 300, 6, 3
STEPS = ThreadPlan((ThreadStep(1, 1), ThreadStep(100, MOST)))


@pytest.fixture(autouse=True)
def _three_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.runtime.devices._share", [MOST])
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))


def features() -> np.ndarray:
    return np.random.default_rng(11).normal(size=(ROWS, WIDTH)).astype(np.float32)


def target() -> np.ndarray:
    return (features()[:, 0] * features()[:, 1] > 0).astype(int)


def make_xgboost(booster: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        xgboost = pytest.importorskip("xgboost")
        options = {"booster": booster, "objective": "binary:logistic", "nthread": 1}
        xgboost.train(options, xgboost.DMatrix(features(), target()), 20).save_model(folder / "m.ubj")
        return str(folder / "m.ubj")

    return make


def make_lightgbm(folder: Path) -> str:
    lightgbm = pytest.importorskip("lightgbm")
    options = {"objective": "binary", "verbose": -1, "num_threads": 1}
    lightgbm.train(options, lightgbm.Dataset(features(), target()), 20).save_model(folder / "m.lgb")
    return str(folder / "m.lgb")


def make_catboost(folder: Path) -> str:
    catboost = pytest.importorskip("catboost")
    made = catboost.CatBoostClassifier(iterations=20, verbose=0, allow_writing_files=False, thread_count=1)
    made.fit(features(), target()).save_model(str(folder / "m.cbm"))
    return str(folder / "m.cbm")


def make_sklearn(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        linear, trees = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.ensemble")
        pipeline = pytest.importorskip("sklearn.pipeline")
        estimator = {
            "logistic": linear.LogisticRegression,
            "forest": lambda: trees.RandomForestClassifier(20, n_jobs=-1, random_state=0),
            "boosted": lambda: trees.HistGradientBoostingClassifier(max_iter=10),
            "pipeline": lambda: pipeline.make_pipeline(trees.ExtraTreesClassifier(20, n_jobs=2, random_state=0)),
            "neighbours": pytest.importorskip("sklearn.neighbors").KNeighborsClassifier,
        }[name]()
        path = folder / "m.joblib"
        pytest.importorskip("joblib").dump(estimator.fit(features(), target()), path)
        return str(path)

    return make


MAKERS: dict[str, Callable[[Path], str]] = {
    "xgboost": make_xgboost("gbtree"),
    "xgboost linear": make_xgboost("gblinear"),
    "lightgbm": make_lightgbm,
    "catboost": make_catboost,
    **{name: make_sklearn(name) for name in ("logistic", "forest", "boosted", "pipeline", "neighbours")},
}


def loaded(model: str, threads: int | None = None) -> Any:
    return load_model(model, threads=threads, trust_pickle=model.endswith(".joblib"))


def answers(runtime: Any, rows: int) -> Columns:
    return runtime.launch([runtime.prepare(features()[:rows].tolist())]).wait()


@pytest.mark.parametrize("name", MAKERS)
def test_answers_are_the_same_whatever_the_threads_are(name: str, tmp_path: Path) -> None:
    model = loaded(MAKERS[name](tmp_path))
    runtime: Any = model
    assert isinstance(model, ThreadedRuntime)
    assert model.thread_candidates == (1, MOST)
    expected = answers(runtime, ROWS)  # as the library would have it
    for plan in (ThreadPlan.fixed(1), ThreadPlan.fixed(MOST), STEPS, ThreadPlan.fixed(1)):
        runtime.use_threads(plan)
        for rows in (1, ROWS):
            for column, values in answers(runtime, rows).items():
                np.testing.assert_allclose(values, expected[column][:rows], rtol=1e-6, atol=1e-12)
    runtime.close()


def threads_seen(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The numbers that the library itself is given, call by call."""
    model, seen = runtime._threaded, list[Any]()
    if runtime.info.runtime == "xgboost":
        import json

        predict = model.predict

        def configured(columns: Any) -> Columns:
            found = predict(columns)
            seen.append(int(json.loads(model._booster.save_config())["learner"]["generic_param"]["nthread"]))
            return found

        monkeypatch.setattr(model, "predict", configured)
        return seen
    owner, name, option = {
        "lightgbm": lambda: (model._booster, "predict", "num_threads"),
        "catboost": lambda: (model, "_predict", "thread_count"),
    }[runtime.info.runtime]()
    method = getattr(owner, name)

    def recorded(*values: Any, **options: Any) -> Any:
        seen.append(options[option])
        return method(*values, **options)

    monkeypatch.setattr(owner, name, recorded)
    return seen


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
def test_a_booster_is_given_the_number_of_the_plan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = loaded(MAKERS[name](tmp_path))
    seen = threads_seen(runtime, monkeypatch)
    runtime.use_threads(STEPS)
    for rows in (1, 99, 100, ROWS, 1):
        answers(runtime, rows)
    assert seen == [1, 1, MOST, MOST, 1]


@dataclass
class Witness:
    """An estimator that answers with the threads that its call may use: its own number, joblib's, BLAS's, OpenMP's."""

    n_jobs: int | None = None
    n_features_in_ = WIDTH

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"n_jobs": self.n_jobs}

    def predict(self, given: Any) -> np.ndarray:
        return np.tile([self.n_jobs or 0, *limits()], (len(given), 1))


@dataclass
class Nesting:
    """An estimator with another one somewhere in it."""

    parts_: list[tuple[str, dict[str, Witness]]]
    n_features_in_ = WIDTH

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def predict(self, given: Any) -> np.ndarray:
        return self.parts_[0][1]["best"].predict(given)


def limits() -> tuple[int, int, int]:
    joblib, threadpoolctl = pytest.importorskip("joblib"), pytest.importorskip("threadpoolctl")
    pytest.importorskip("sklearn.ensemble")  # its OpenMP
    pools = {"blas": 0, "openmp": 0}
    for pool in threadpoolctl.threadpool_info():
        pools[pool["user_api"]] = max(pools.get(pool["user_api"], 0), pool["num_threads"])
    return joblib.effective_n_jobs(None), pools["blas"], pools["openmp"]


@pytest.mark.parametrize("nested", [False, True])
def test_an_estimator_and_all_in_it_have_the_number_of_the_plan_and_nothing_else_has_it_afterwards(
    nested: bool, tmp_path: Path
) -> None:
    estimator: Any = Witness(n_jobs=-1)
    if nested:
        estimator = Nesting([("last", {"best": estimator})])
    before = limits()
    pytest.importorskip("joblib").dump(estimator, tmp_path / "m.joblib")
    runtime = loaded(str(tmp_path / "m.joblib"))
    runtime.use_threads(STEPS)
    for rows, threads in ((1, 1), (ROWS, MOST), (1, 1)):
        assert answers(runtime, rows)["prediction"][0].tolist() == [threads] * 4
        assert limits() == before


def test_an_estimator_of_which_nothing_was_measured_keeps_its_own_number(tmp_path: Path) -> None:
    pytest.importorskip("joblib").dump(Witness(n_jobs=-1), tmp_path / "m.joblib")
    runtime = loaded(str(tmp_path / "m.joblib"))
    assert threads_of(runtime) is None
    assert answers(runtime, 1)["prediction"][0, 0] == -1


def test_the_stored_choice_is_used_and_the_users_own_number_wins(tmp_path: Path) -> None:
    model = MAKERS["lightgbm"](tmp_path)
    runtime = loaded(model)
    assert threads_of(runtime) is None
    profiles().put(profile_of(runtime.info, CallCost.line(0.001, 1e-5), RowSize.uniform(1), 10, STEPS))
    assert threads_of(loaded(model)) == STEPS
    for threads in (1, MOST):
        fixed = loaded(model, threads)
        assert fixed.thread_candidates == (threads,)
        assert threads_of(fixed) == ThreadPlan.fixed(threads)
        assert fixed.info.device != runtime.info.device  # another curve, under another name


def test_a_server_measures_its_choice_keeps_it_and_says_it(tmp_path: Path) -> None:
    path, said = MAKERS["lightgbm"](tmp_path), list[str]()
    model = served_model("m", ModelSettings(model=path, slo_ms=500), said.append)
    chosen = threads_of(model.engine.runtime)
    assert any("Measuring" in line for line in said)
    assert chosen is not None
    assert {step.threads for step in chosen.steps} <= {1, MOST}
    assert model.derived.to_dict()["threads"] == str(chosen)
    model.engine.close()
    assert threads_of(loaded(path)) == chosen


def test_a_jobs_own_device_uses_the_threads_that_its_model_was_saved_with(tmp_path: Path) -> None:
    pytest.importorskip("joblib").dump(Witness(n_jobs=-1), tmp_path / "m.joblib")
    model = str(tmp_path / "m.joblib")
    info = loaded(model).info
    profiles().put(profile_of(info, CallCost.line(0.001, 1e-5), RowSize.uniform(1), 10, STEPS))
    settings = JobSettings(inputs=("x",), output="y", model=model, trust_pickle=True)
    device = open_job_device(settings)
    assert device.info == info
    assert threads_of(device._runtime) is None  # pyright: ignore[reportAttributeAccessIssue]
