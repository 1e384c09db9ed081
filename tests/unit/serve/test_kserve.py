"""KServe's first protocol: instances in, predictions out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from own_service import doubling_service

from twoshift.endpoints.known import told_openai
from twoshift.errors import InvalidInput
from twoshift.ports import RuntimeInfo
from twoshift.serve.http.app import App
from twoshift.serve.http.kserve import add_kserve
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.openai import add_openai
from twoshift.serve.keys import Keys
from twoshift.serve.oip.instances import rows_of
from twoshift.serve.service import Service
from twoshift.types import Tensor

TEXT, QUERY = Tensor("text", "text"), Tensor("query", "text")
NUMBERS = tuple(Tensor(name, "float32") for name in ("a", "b"))
FEATURES = (Tensor("features", "float32", (2,)),)


@pytest.fixture
def app() -> Iterator[tuple[App, Service]]:
    with doubling_service() as (service, _):
        made = App(told_openai, Keys({}))
        add_kserve(made, service)
        add_openai(made, service)
        yield made, service


def asked(app: tuple[App, Service], method: str, path: str, body: Any = None) -> Reply:
    request = Request(method, path.encode(), {}, b"" if body is None else json.dumps(body).encode(), time.monotonic())

    async def run() -> Reply:
        app[1].start()
        return await app[0].handle(request)

    return asyncio.run(run())


def test_each_instance_has_a_prediction(app: tuple[App, Service]) -> None:
    instances = [{"x": 1.5, "word": "one"}, {"x": 2.0, "word": "two"}]
    reply = asked(app, "POST", "/v1/models/m:predict", {"instances": instances, "signature_name": "serving_default"})
    assert reply.status == 200, reply.body
    assert json.loads(reply.body) == {"predictions": [{"double": 3.0, "echo": "one"}, {"double": 4.0, "echo": "two"}]}


def test_a_class_with_an_example_takes_its_values_in_order() -> None:
    info = RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, (), example={"a": 1.0, "b": 2.0})
    assert rows_of(info, [[1, 2], {"a": 3, "c": 4}]) == [{"a": 1, "b": 2}, {"a": 3, "c": 4}]


def test_a_model_says_that_it_is_ready_beside_what_openai_has(app: tuple[App, Service]) -> None:
    told = json.loads(asked(app, "GET", "/v1/models/m").body)
    assert (told["name"], told["ready"], told["id"], told["object"]) == ("m", True, "m", "model")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/models/nope:predict", {"instances": [{}]}, 404),
        ("/v1/models/m:predict", {"instances": []}, 400),
        ("/v1/models/m:predict", {"inputs": [1]}, 400),
        ("/v1/models/m:predict", None, 400),
        ("/v1/models/m:predict", {"instances": [{"x": 1.0}], "frobnicate": 1}, 400),
    ],
)
def test_errors_are_texts(app: tuple[App, Service], path: str, body: Any, status: int) -> None:
    reply = asked(app, "POST", path, body)
    assert reply.status == status
    assert isinstance(json.loads(reply.body)["error"], str)


@pytest.mark.parametrize(
    ("inputs", "instances", "rows"),
    [
        ((TEXT,), ["a", {"text": "b"}], ["a", "b"]),
        ((QUERY, TEXT), [["q", "t"], {"text": "t", "query": "q"}], [("q", "t"), ("q", "t")]),
        (NUMBERS, [[1, 2], {"b": 2, "a": 1}], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
        (FEATURES, [[1, 2], {"features": [3, 4]}], [{"features": [1, 2]}, {"features": [3, 4]}]),
    ],
)
def test_instances_are_objects_or_values_in_order(inputs: Any, instances: list[Any], rows: list[Any]) -> None:
    assert rows_of(_info(inputs), instances) == rows


@pytest.mark.parametrize(
    ("inputs", "instance"), [(NUMBERS, [1, 2, 3]), (NUMBERS, {"a": 1}), (NUMBERS, 7), ((QUERY, TEXT), "only one")]
)
def test_an_instance_that_does_not_fit_is_named(inputs: Any, instance: Any) -> None:
    with pytest.raises(InvalidInput, match=r"instances\[0\]"):
        rows_of(_info(inputs), [instance])


@pytest.mark.parametrize(
    ("inputs", "instance"),
    [((TEXT,), [1, 2]), ((TEXT,), {"text": [1, 2]}), ((TEXT,), []), ((QUERY, TEXT), ["a query", [1, 2]])],
)
def test_token_ids_are_refused_where_a_model_takes_texts(inputs: Any, instance: Any) -> None:
    with pytest.raises(InvalidInput, match=r"instances\[0\]\.text: 'token ids' .*allow_token_ids"):
        rows_of(_info(inputs), [instance])
    with pytest.raises(InvalidInput, match=r"instances\[0\]\.text: 7 cannot be used; expected a string"):
        rows_of(_info((TEXT,)), [7])


def _info(inputs: tuple[Tensor, ...]) -> RuntimeInfo:
    return RuntimeInfo("m", "0", "onnxruntime", "cpu", "fp32", 1, ("y",), inputs=inputs)
