"""Models that come and go while others are served: from Python, by the program, and by Triton's clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import until

import twoshift
from twoshift.serve.keys import digest_of
from twoshift.serve.settings import make_settings

pytestmark = pytest.mark.slow
MODEL = '''
import pathlib, time
import numpy as np

HERE = pathlib.Path(__file__).parent

class Fast:
    """Its files say what it does: `wait` holds its load, `fail` ends it, `hold` holds its answers."""

    outputs = ("embedding",)
    example = "a"

    def load(self):
        named = type(self).__name__
        while (HERE / f"wait-{named}").exists():
            time.sleep(0.01)
        if (HERE / f"fail-{named}").exists():
            raise RuntimeError("these weights are damaged")
        self.value = float((HERE / "value").read_text())

    def prepare(self, rows):
        return {"row": np.array(rows, object)}

    def predict(self, batch):
        rows = batch["row"]
        while "hold" in rows and (HERE / "hold").exists():
            time.sleep(0.01)
        return {"embedding": np.full((len(rows), 2), self.value)}

class Slow(Fast):
    pass
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "value").write_text("1")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[twoshift.Server]:
    with twoshift.Server(f"{folder}/m.py:Fast", slo_ms=60000, port=0, grpc_port=0) as made:
        yield made


def both(folder: Path, **more: Any) -> twoshift.Server:
    models = {name: {"model": f"{folder}/m.py:{name.title()}", "slo_ms": 60000} for name in ("fast", "slow")}
    return twoshift.Server(make_settings({"port": 0, "models": models, **more}))


def asked(server: twoshift.Server, model: str, text: str = "a", **more: Any) -> httpx.Response:
    body = {"model": model, "input": text}
    return httpx.post(f"{server.address}/v1/embeddings", json=body, timeout=120, **more)


def value(server: twoshift.Server, model: str, text: str = "a") -> float:
    return asked(server, model, text).raise_for_status().json()["data"][0]["embedding"][0]


def repository(server: twoshift.Server, path: str, **more: Any) -> httpx.Response:
    return httpx.post(f"{server.address}/v2/repository/{path}", json={}, timeout=120, **more)


def index(server: twoshift.Server) -> dict[str, dict[str, str]]:
    return {each["name"]: each for each in repository(server, "index").json()}


def test_a_server_in_python_answers_and_ends(server: twoshift.Server) -> None:
    assert value(server, "Fast") == 1.0
    assert httpx.get(f"{server.address}/readyz").json() == {"status": "ready"}
    assert server.close()
    with pytest.raises(httpx.ConnectError):
        asked(server, "Fast")


def test_a_model_is_served_while_another_one_loads(folder: Path) -> None:
    (folder / "wait-Slow").touch()
    server = both(folder)
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        until(lambda: "fast" in server.deployments)
        until(lambda: asked(server, "fast").status_code == 200)  # the port takes requests a moment after that
        assert value(server, "fast") == 1.0
        got = httpx.get(f"{server.address}/readyz")
        assert (got.status_code, got.json()["reason"]) == (503, f"slow is loading: Loading {folder}/m.py:Slow")
        assert httpx.get(f"{server.address}/healthz").status_code == 200
        refused = asked(server, "slow")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert "slow is loading" in refused.json()["error"]["message"]
        listed = {each["id"]: each for each in httpx.get(f"{server.address}/v1/models").json()["data"]}
        assert "state" not in listed["fast"]
        assert listed["slow"]["state"] == "loading"
        (folder / "wait-Slow").unlink()
        starting.join()
        assert value(server, "slow") == 1.0
        assert httpx.get(f"{server.address}/readyz").status_code == 200
    finally:
        (folder / "wait-Slow").unlink(missing_ok=True)
        starting.join()
        server.close()


def test_one_that_fails_leaves_the_others_serving_and_can_be_loaded_later(folder: Path) -> None:
    (folder / "fail-Slow").touch()
    with both(folder) as server:
        assert value(server, "fast") == 1.0
        refused = asked(server, "slow")
        assert refused.status_code == 503
        assert "slow failed to load" in refused.json()["error"]["message"]
        assert "these weights are damaged" in refused.json()["error"]["message"]
        ready = httpx.get(f"{server.address}/readyz")
        assert ready.status_code == 200
        assert "these weights are damaged" in ready.json()["warnings"][0]
        assert index(server)["slow"]["state"] == "UNAVAILABLE"
        assert "these weights are damaged" in index(server)["slow"]["reason"]
        (folder / "fail-Slow").unlink()
        assert repository(server, "models/slow/load").status_code == 200
        assert value(server, "slow") == 1.0


@pytest.mark.parametrize("replicas", [1, 2])
def test_one_that_hangs_while_it_loads_fails_alone_once_its_time_is_over(folder: Path, replicas: int) -> None:
    (folder / "wait-Slow").touch()
    models = {
        "slow": {"model": f"{folder}/m.py:Slow", "load_timeout": "1s", "replicas": replicas},
        "fast": {"model": f"{folder}/m.py:Fast", "slo_ms": 60000},
    }
    with twoshift.Server(make_settings({"port": 0, "models": models})) as server:
        assert value(server, "fast") == 1.0
        refused = asked(server, "slow").json()["error"]["message"]
        told = f"slow failed to load: {folder}/m.py:Slow was not loaded within 1 s (last reported step: "
        assert told in refused
        assert "load_timeout" in refused
        (folder / "wait-Slow").unlink()
        server.load("slow", load_timeout="10m")
        assert value(server, "slow") == 1.0


def test_where_all_fail_the_start_fails(folder: Path) -> None:
    (folder / "fail-Slow").touch()
    (folder / "fail-Fast").touch()
    server = both(folder)
    with pytest.raises(twoshift.TwoshiftError, match="these weights are damaged"):
        server.start()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.address}/healthz")


def test_what_was_admitted_is_answered_before_a_model_goes(server: twoshift.Server, folder: Path) -> None:
    (folder / "hold").touch()
    held, unloaded = list[httpx.Response](), list[httpx.Response]()
    patient = {"x-request-timeout-ms": "60000"}
    asking = threading.Thread(target=lambda: held.append(asked(server, "Fast", "hold", headers=patient)))
    asking.start()
    serving = server.deployments["Fast"].serving
    assert serving is not None
    until(lambda: serving.inside == 1)
    unloading = threading.Thread(target=lambda: unloaded.append(repository(server, "models/Fast/unload")))
    unloading.start()
    until(lambda: "Fast" not in server.deployments)
    refused = asked(server, "Fast")
    assert (refused.status_code, "Fast is unloading" in refused.text) == (404, True)
    assert not held
    (folder / "hold").unlink()
    asking.join()
    unloading.join()
    assert (held[0].status_code, unloaded[0].status_code) == (200, 200)
    assert index(server)["Fast"]["reason"] == "Fast is unloaded"
    server.load("Fast")
    assert value(server, "Fast") == 1.0


def test_a_model_is_replaced_and_one_that_cannot_be_goes_on(server: twoshift.Server, folder: Path) -> None:
    (folder / "value").write_text("2")
    assert value(server, "Fast") == 1.0
    assert repository(server, "models/Fast/load").status_code == 200
    assert value(server, "Fast") == 2.0
    (folder / "fail-Fast").touch()
    got = repository(server, "models/Fast/load")
    assert got.status_code >= 400
    assert "these weights are damaged" in got.json()["error"]
    assert value(server, "Fast") == 2.0
    assert index(server)["Fast"]["state"] == "READY"


def test_deployments_are_added_and_removed_from_python(server: twoshift.Server, folder: Path) -> None:
    added = server.load("more", f"{folder}/m.py:Slow", slo_ms=60000)
    assert added.derived.slo_s == 60.0
    assert value(server, "more") == 1.0
    server.remove("more")
    assert asked(server, "more").status_code == 404
    assert [*server.deployments.all] == ["Fast"]
    with pytest.raises(twoshift.NotFound, match="one of these models: Fast"):
        server.load("never")


def test_only_an_admin_loads_and_unloads_where_there_are_keys(folder: Path) -> None:
    keys = {
        "user": {"sha256": digest_of("u")},
        "boss": {"sha256": digest_of("b"), "scopes": ["admin"]},
    }
    with both(folder, keys=keys) as server:
        for what in ("load", "unload"):
            refused = repository(server, f"models/slow/{what}", headers={"authorization": "Bearer u"})
            assert refused.status_code == 403
        assert "slow" in server.deployments
        allowed = repository(server, "models/slow/unload", headers={"authorization": "Bearer b"})
        assert allowed.status_code == 200
        assert "slow" not in server.deployments


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritons_own_clients_load_and_unload(server: twoshift.Server, kind: str) -> None:
    client_of = pytest.importorskip(f"tritonclient.{kind}").InferenceServerClient
    address = server.address.removeprefix("http://") if kind == "http" else server.grpc_address
    client = client_of(address)
    try:
        client.unload_model("Fast")
        assert not client.is_model_ready("Fast")
        found = client.get_model_repository_index()
        told = found if kind == "http" else json.loads(_json(found))["models"]
        assert told[0] == {"name": "Fast", "version": "1", "state": "UNAVAILABLE", "reason": "Fast is unloaded"}
        client.load_model("Fast")
        assert client.is_model_ready("Fast")
    finally:
        client.close()


def _json(message: Any) -> str:
    from google.protobuf import json_format

    return json_format.MessageToJson(message)


def test_a_job_of_a_model_that_is_unloaded_waits_and_goes_on_once_it_is_back(
    server: twoshift.Server, folder: Path
) -> None:
    rows = "".join(f'{{"text": "{text}"}}\n' for text in ["hold", *"abcdef"])
    (folder / "in.jsonl").write_text(rows)
    (folder / "hold").touch()
    job = {"inputs": [f"{folder}/in.jsonl"], "text": "text", "model": "Fast", "output": f"{folder}/out"}
    made = httpx.post(f"{server.address}/v1/jobs", json=job, timeout=120).raise_for_status().json()

    def shown() -> dict[str, Any]:
        return httpx.get(f"{server.address}/v1/jobs/{made['id']}").raise_for_status().json()

    until(lambda: shown()["state"] == "running")
    unloading = threading.Thread(target=lambda: server.unload("Fast"))
    unloading.start()
    until(lambda: "Fast" not in server.deployments)
    (folder / "hold").unlink()
    unloading.join()
    until(lambda: shown()["state"] in ("queued", "done"))
    if shown()["state"] == "queued":  # it may have done with its rows first
        assert "Fast is unload" in shown()["reason"]
    server.load("Fast")
    until(lambda: shown()["state"] == "done")
    assert httpx.get(f"{server.address}/v1/jobs/{made['id']}").json()["progress"]["errors"] == 0
