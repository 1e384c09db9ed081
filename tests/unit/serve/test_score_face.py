"""Rows of named values over HTTP: a real model of a table answers them as it answers the rows of a file."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from twoshift.batch.inputs import InputFile, model_types, read
from twoshift.batch.settings import make_settings
from twoshift.batch.table_rows import readable_rows
from twoshift.blobs.local import LocalBlobs
from twoshift.endpoints.known import told_openai
from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import Runtime
from twoshift.runtime import load_model
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.http.app import App
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.scoring import add_scoring
from twoshift.serve.keys import Keys
from twoshift.serve.model import ServedModel
from twoshift.serve.service import Service

NAMES = ["amount", "age", "is_new"]
COST, LIMITS = CallCost.line(0.001, 1e-5), LaneLimits(slo_s=600.0)
CSV = "id,is_new,amount,age\na,true,12.5,30\nb,false,,41\nc,true,NA,\n"
ROWS: list[dict[str, Any]] = [
    {"id": "a", "is_new": True, "amount": 12.5, "age": 30},
    {"id": "b", "is_new": False, "amount": None, "age": 41},
    {"id": "c", "is_new": True, "amount": "", "age": None},
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    xgboost = pytest.importorskip("xgboost")
    values = np.random.default_rng(1).random((60, 3)) * [20, 60, 1]
    data = xgboost.DMatrix(values, (values[:, 0] * 3 // 20), feature_names=NAMES)
    path = tmp_path_factory.mktemp("model") / "fraud.ubj"
    options = {"objective": "multi:softprob", "num_class": 3, "max_depth": 3, "verbosity": 0, "nthread": 1}
    xgboost.train(options, data, 4).save_model(path)
    return str(path)


@pytest.fixture
def app(saved: str) -> Iterator[tuple[App, Service]]:
    engine = Engine(load_model(saved, threads=1), COST, LIMITS)
    served = ServedModel("fraud", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 10))
    service = Service(Deployments({"fraud": served}))
    made = App(told_openai, Keys({}))
    add_scoring(made, service)
    yield made, service
    service.close()


def asked(app: tuple[App, Service], method: str, path: str, body: Any = None) -> Reply:
    request = Request(method, path.encode(), {}, b"" if body is None else json.dumps(body).encode(), time.monotonic())

    async def run() -> Reply:
        app[1].start()
        return await app[0].handle(request)

    return asyncio.run(run())


def of_file(model: Runtime, folder: Path) -> np.ndarray:
    """As a job scores them."""
    path = folder / "tx.csv"
    path.write_text(CSV)
    blobs = LocalBlobs()
    found = blobs.stat(str(path))
    assert found is not None
    file = InputFile(found.location, found.size_bytes, found.identity, "csv")
    settings = make_settings({"inputs": [str(path)], "output": "out", "model": "fraud.ubj"})
    types = model_types([file], lambda _: blobs, None, {})
    (batch,) = read(file.head(), file, blobs, None, 100, 1 << 20)
    assert isinstance(batch, pa.RecordBatch)
    rows = [*readable_rows(batch, settings, types).values()]
    return model.launch([model.prepare(rows)]).wait()["prediction"]


def test_live_rows_are_answered_as_the_rows_of_a_file(app: tuple[App, Service], saved: str, tmp_path: Path) -> None:
    told = json.loads(asked(app, "POST", "/v1/score/fraud", {"rows": ROWS}).body)
    live = np.array([row["prediction"] for row in told["rows"]], np.float32)
    np.testing.assert_array_equal(live, of_file(load_model(saved, threads=1), tmp_path))
    assert told["classes"] == {"prediction": ["0", "1", "2"]}


def test_the_model_may_stand_in_the_body(app: tuple[App, Service]) -> None:
    one = [ROWS[0]]
    by_path = asked(app, "POST", "/v1/score/fraud", {"rows": one}).body
    assert asked(app, "POST", "/v1/score", {"model": "fraud", "rows": one}).body == by_path
    assert asked(app, "POST", "/v1/score", {"rows": one}).body == by_path


def test_features_are_told_in_their_order(app: tuple[App, Service]) -> None:
    told = json.loads(asked(app, "GET", "/v1/score/fraud").body)
    assert [each["name"] for each in told["features"]] == NAMES
    assert {each["type"] for each in told["features"]} == {"float32"}
    assert (told["outputs"], told["classes"]) == (["prediction"], {"prediction": ["0", "1", "2"]})


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/v1/score/nope", {"rows": ROWS}, 404, "model"),
        ("/v1/score/fraud", {"rows": []}, 400, "rows"),
        ("/v1/score/fraud", {"model": "other", "rows": ROWS}, 400, "model"),
        ("/v1/score/fraud", {"rows": [ROWS[0], {"amount": 1}]}, 400, "rows[1].age"),
        ("/v1/score/fraud", {"rows": [ROWS[0] | {"age": "old"}]}, 400, "rows[0].age"),
        ("/v1/score/fraud", {"rows": [ROWS[0] | {"age": "x" * 1_000_000}]}, 400, "rows[0].age"),
        ("/v1/score/fraud", {"rows": [ROWS[0] | {"age": "9" * 1_000_000}]}, 400, "rows[0].age"),
    ],
)
def test_an_error_names_the_row_and_the_field(
    app: tuple[App, Service], path: str, body: Any, status: int, field: str
) -> None:
    reply = asked(app, "POST", path, body)
    assert (reply.status, json.loads(reply.body)["error"]["param"]) == (status, field), reply.body


DOUBLES = """
import numpy as np
class Doubles:
    outputs, example = ("product",), {"x": 1.0}
    def load(self): pass
    def predict(self, batch): return {"product": np.asarray(batch["x"], np.float64) * 2}
"""


@pytest.mark.parametrize("word", ["old", "x" * 1_000_000])
def test_a_text_for_a_number_that_a_users_class_cannot_take_is_the_clients_mistake(word: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(DOUBLES)
    engine = Engine(load_model(f"{tmp_path}/m.py:Doubles"), COST, LIMITS)
    served = ServedModel("m", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 10))
    service, made = Service(Deployments({"m": served})), App(told_openai, Keys({}))
    add_scoring(made, service)
    try:
        reply = asked((made, service), "POST", "/v1/score", {"rows": [{"x": 1.0}, {"x": word}]})
    finally:
        service.close()
    assert (reply.status, json.loads(reply.body)["error"]["param"]) == (400, "rows[1].x"), reply.body
    assert len(reply.body) < 1000
