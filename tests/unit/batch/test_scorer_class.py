from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twoshift import InvalidInput, Scorer
from twoshift.batch.pipelines import ERROR
from twoshift.batch.result_columns import ERROR as PART_ERROR
from twoshift.errors import Broken, NotFound
from twoshift.registry.artifact import Artifact, ArtifactFile
from twoshift.scorers import _shared_scorer, spark_scorer
from twoshift.wiring.registered_models import registry_at

MODEL = """
import numpy as np

class Named:
    def load(self):
        pass

    def prepare(self, rows):
        return {"size": np.array([len(row["body"]) for row in rows])}

    def predict(self, batch):
        if (batch["size"] == 3).any():
            raise ValueError("unlucky")
        return {"name": np.array(["x" * n for n in batch["size"]]), "half": batch["size"] / 2}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(MODEL)
    return f"{tmp_path / 'model.py'}:Named"


def batch(*bodies: str | None) -> dict[str, np.ndarray]:
    return {"id": np.arange(len(bodies)), "body": np.array([*bodies, ""], object)[:-1]}


def test_a_text_is_not_cut_to_the_length_of_those_before_it(model: str) -> None:
    result = Scorer(model, columns=["body"], keep=["id"])(batch("a", None, "bbbbbbbb"))  # prepared in two parts
    assert list(result) == ["id", "name", "half", "error"]
    assert result["name"].tolist() == ["x", None, "xxxxxxxx"]


def test_a_batch_of_bad_rows_only_has_the_columns_of_the_others(model: str) -> None:
    scorer = Scorer(model, columns=["body"])
    scorer(batch("a", "bb"))
    result = scorer(batch("ccc", "ccc"))
    assert np.isnan(result["half"]).all()
    assert result["name"].tolist() == [None, None]
    assert result["error"].tolist() == [f"ValueError: unlucky (at {model.partition(':')[0]}:13)"] * 2


def test_a_column_that_is_not_there_is_named_with_those_that_are(model: str) -> None:
    with pytest.raises(InvalidInput, match="one of the columns id, body"):
        Scorer(model, columns=["text"])(batch("a"))


@pytest.mark.parametrize("options", [{"pair": "b"}, {"text": "a", "columns": ["b"]}])
def test_options_that_do_not_go_together_are_refused(model: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        Scorer(model, **options)  # type: ignore[arg-type]


def test_a_task_finds_every_model_that_its_process_has_loaded(model: str) -> None:
    options = [(("keep", (name,)), ("model", model)) for name in "abcd"]
    loaded = [_shared_scorer(each) for each in options]
    assert [_shared_scorer(each) for each in options] == loaded


def test_errors_are_called_as_in_a_part() -> None:
    assert ERROR == PART_ERROR


def _save_booster(library: str, path: Path, values: Any, goal: Any) -> None:
    trees = pytest.importorskip(library)
    match library:
        case "xgboost":
            trees.train({"verbosity": 0}, trees.DMatrix(values, goal), 4).save_model(path)
        case "lightgbm":
            trees.train({"verbosity": -1}, trees.Dataset(values, goal), 4).save_model(path)
        case _:
            options = {"iterations": 20, "verbose": False, "allow_writing_files": False}
            trees.CatBoostRegressor(**options).fit(values, goal).save_model(str(path))


@pytest.mark.parametrize(("library", "name"), [("xgboost", "m.ubj"), ("lightgbm", "m.lgb"), ("catboost", "m.cbm")])
@pytest.mark.slow
def test_a_booster_without_names_takes_the_columns_in_the_order_that_is_given(
    tmp_path: Path, library: str, name: str
) -> None:
    values = np.random.default_rng(7).normal(size=(200, 2))
    goal = values @ [1.0, 4.0]
    _save_booster(library, tmp_path / name, values, goal)
    scorer = Scorer(str(tmp_path / name), columns=["b", "a"])
    found = scorer({"a": values[:, 1], "b": values[:, 0]})
    swapped = scorer({"a": values[:, 0], "b": values[:, 1]})
    assert set(found["error"]) == {None}
    assert np.corrcoef(found["prediction"], goal)[0, 1] > 0.8
    assert np.corrcoef(swapped["prediction"], goal)[0, 1] < 0.8


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A registry with two versions of `times`, of which the first is `times@prod`."""
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    location = str(tmp_path / "registry")
    for number in (1, 2):
        path = tmp_path / f"v{number}" / "times.py"
        path.parent.mkdir()
        path.write_text(TIMES.replace("FACTOR", str(number)))
        registry_at(location).push("times", Artifact("times.py:Times", (ArtifactFile("times.py", path),), str(path)))
    registry_at(location).alias("times", "prod", 1)
    return location


TIMES = """
class Times:
    def load(self):
        pass

    def predict(self, batch):
        return {"product": batch["x"] * FACTOR}
"""


def test_workers_load_the_version_that_the_driver_has_pinned(registered: str) -> None:
    pinned = Scorer.pinned("times@prod", registry=registered, columns=["x"])
    over_spark = spark_scorer("times@prod", registry=registered, columns=["x"])
    registry_at(registered).alias("times", "prod", 2)
    assert (pinned["model"], pinned["registry"], pinned["columns"]) == ("times:1", registered, ["x"])
    assert Scorer(**pinned)({"x": np.array([10.0])})["product"].tolist() == [10.0]
    frame = pytest.importorskip("pandas").DataFrame({"x": [10.0]})
    assert [each["product"].tolist() for each in over_spark(iter([frame]))] == [[10.0]]
    now = Scorer("times@prod", registry=registered, columns=["x"])
    assert now({"x": np.array([10.0])})["product"].tolist() == [20.0]


def test_a_version_with_another_content_than_the_driver_has_seen_is_refused(registered: str) -> None:
    pinned = Scorer.pinned("times@prod", registry=registered) | {"checksum": "sha256:00"}
    with pytest.raises(Broken, match="the driver has loaded sha256:00"):
        Scorer(**pinned)
    with pytest.raises(NotFound, match="a version of times: 1, 2"):
        spark_scorer("times:9", registry=registered)


def test_an_actor_does_not_choose_a_version_itself(registered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(get_actor_id=lambda: "an actor")
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    for word in ("times", "times@prod"):
        with pytest.raises(InvalidInput, match=r"twoshift\.Scorer\.pinned"):
            Scorer(word, registry=registered)
    Scorer(**Scorer.pinned("times", registry=registered)).close()


def test_a_model_that_is_not_registered_is_pinned_as_it_is(model: str) -> None:
    assert Scorer.pinned(model, keep=["id"]) == {"model": model, "keep": ["id"]}
