"""The registry of deployments, while it changes."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from own_service import doubling_service

from twoshift.errors import InvalidInput, NotFound, TryLater
from twoshift.ports import RuntimeInfo
from twoshift.serve.deployments import Deployment, Deployments, DeploymentState, is_reranker
from twoshift.serve.http.row_calls import facts_of
from twoshift.serve.service import Service
from twoshift.types import Tensor


def test_one_that_loads_is_known_and_says_how_far_it_is() -> None:
    models = Deployments()
    loading = models.add(Deployment("m"))
    loading.reason = "3 of 7 files"
    assert not models
    assert models.all["m"] is loading
    assert Service(models).unready() == "m is loading: 3 of 7 files"
    with pytest.raises(TryLater, match="m is loading: 3 of 7 files"):
        models.find("m")
    with pytest.raises(NotFound, match="one of these models: m"):
        models.find("n")


def test_one_that_failed_says_why_and_leaves_the_others() -> None:
    with doubling_service() as (service, _):
        failed = service.models.add(Deployment("bad"))
        service.models.move(failed, DeploymentState.FAILED, "no such file")
        assert [*service.models] == ["m"]
        assert service.find("m").name == "m"
        assert service.unready("bad") == "bad failed to load: no such file"
        assert service.unready("m") is None
        with pytest.raises(TryLater, match="bad failed to load: no such file"):
            service.find("bad")


def test_a_name_is_taken_once_and_free_after_removal() -> None:
    models = Deployments()
    first = models.add(Deployment("m"))
    with pytest.raises(InvalidInput, match="a name that no other deployment uses"):
        models.add(Deployment("m"))
    models.remove(first)
    assert models.add(Deployment("m")) is not first


def test_a_reader_has_the_deployments_of_one_moment() -> None:
    with doubling_service() as (service, _):
        models, model = service.models, service.find("m")
        seen = models.items()
        models.move(model, DeploymentState.UNLOADING)
        assert [name for name, _ in seen] == ["m"]
        assert not models
        models.serve(model, model.backend)  # for the fixture's close


def test_what_was_admitted_is_answered_by_the_backend_that_admitted_it() -> None:
    async def asked(service: Service, other: Service, gate: object) -> None:
        service.start()
        model = service.find("m")
        old = model.serving
        assert old is not None
        first = asyncio.ensure_future(service.answer(model, [{"x": 1.0}], 10.0, time.monotonic()))
        await asyncio.sleep(0)
        assert old.inside == 1
        assert service.deploy(model, other.find("m").backend) is old
        second = await service.answer(model, [{"x": 2.0}], 10.0, time.monotonic())
        assert second.rows[0]["double"] == 4.0
        assert not first.done()
        gate.set()  # type: ignore[attr-defined]
        assert (await first).rows[0]["double"] == 2.0
        assert old.inside == 0

    with doubling_service() as (service, doubling), doubling_service() as (other, _):
        old = service.find("m").backend
        doubling.gate.clear()
        asyncio.run(asked(service, other, doubling.gate))
        old.close()


def test_an_unloaded_one_is_not_found_and_says_so() -> None:
    with doubling_service() as (service, _):
        model = service.find("m")
        backend = model.backend
        service.models.move(model, DeploymentState.UNLOADED)
        with pytest.raises(NotFound, match="a loaded model; m is unloaded"):
            service.find("m")
        with pytest.raises(NotFound, match="m is unloaded"):
            _ = model.info
        backend.close()


def test_an_adapter_is_a_name_of_its_model() -> None:
    with doubling_service() as (service, _):
        models = service.models
        models["m"].adapters = ("sql",)
        assert models.find("sql") is models.known("sql") is models["m"]
        assert models.names() == {"m": "m", "sql": "m"}
        with pytest.raises(NotFound, match="one of these models: m, sql"):
            models.find("chess")
        models.move(models["m"], DeploymentState.LOADING)
        with pytest.raises(TryLater, match="m is loading"):
            models.find("sql")


def test_what_a_requests_form_depends_on_is_made_once_for_a_backend_and_its_outputs() -> None:
    with doubling_service() as (service, _), doubling_service() as (other, _):
        model, another = service.find("m"), other.find("m").backend
        before = facts_of(model)
        assert facts_of(model) is before
        service.models.serve(model, another)
        after = facts_of(model)
        assert after is not before
        model.backend.outputs = (Tensor("late", "float32", (3,)),)
        assert facts_of(model).sizes == {"late": 3}


def test_a_request_without_a_time_is_let_in_with_the_time_that_a_start_takes_where_its_model_sleeps() -> None:
    """Else a burst that wakes a model is turned away as if its answers were due within the objective."""
    model, service = Deployment("m"), Service(Deployments())
    assert service.timeout_s(model) == model.timeout_s
    model.serving = cast(Any, SimpleNamespace(wakes_in_s=lambda: 5.0))
    assert service.timeout_s(model) >= model.timeout_s + 5.0


@pytest.mark.parametrize(
    ("runtime", "outputs", "is_one"),
    [
        ("onnxruntime", ("score",), True),
        ("python", ("score",), False),
        ("onnxruntime", ("embedding",), False),
    ],
)
def test_a_score_is_of_a_pair_of_texts_unless_a_users_class_has_it(
    runtime: str, outputs: tuple[str, ...], is_one: bool
) -> None:
    info = RuntimeInfo("m", "0", runtime, "cpu", "fp32", 1, outputs)
    assert is_reranker(cast(Any, SimpleNamespace(info=info, outputs=()))) is is_one
