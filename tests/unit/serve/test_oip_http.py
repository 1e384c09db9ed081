"""The Open Inference Protocol's face over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from own_service import MOST_ROWS, Doubling, doubling_service

from twoshift.serve.http.app import App
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.oip import add_oip
from twoshift.serve.http.packing import packed
from twoshift.serve.keys import Keys
from twoshift.serve.service import Service

INFER = "/v2/models/m/infer"


class Face:
    """The paths, and what comes back from them."""

    def __init__(self, service: Service, model: Doubling) -> None:
        self.service, self.model = service, model
        self.app = App(lambda fault: fault.message.encode(), Keys({}))
        add_oip(self.app, service)

    def asked(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        request = Request(method, path.encode(), named, body, time.monotonic())

        async def run() -> Reply:
            self.service.start()
            return await self.app.handle(request)

        return asyncio.run(run())

    def infer(self, asked: dict[str, Any] | bytes, tail: bytes = b"", **headers: str) -> Reply:
        head = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        if tail:
            headers.setdefault("inference_header_content_length", str(len(head)))
        return self.asked("POST", INFER, head + tail, **headers)


def test_every_error_below_v2_is_a_text(face: Face) -> None:
    for method, path in (
        ("GET", "/v2/nothing"),
        ("GET", "/v2/models/m/nothing"),
        ("DELETE", "/v2/models/m"),
        ("GET", "/v2/models/nope"),
        ("POST", "/v2/systemsharedmemory/region/r/register"),
    ):
        reply = face.asked(method, path)
        assert reply.status in (404, 405)
        assert isinstance(told(reply)["error"], str)


def test_metadata_and_config_have_the_same_shapes_as_the_answer(face: Face) -> None:
    reply = face.infer({"inputs": [tensor([1, 2, 3, 4])]})
    outputs = {each["name"]: each["shape"] for each in told(reply)["outputs"]}
    metadata = told(face.asked("GET", "/v2/models/m"))
    config = told(face.asked("GET", "/v2/models/m/config"))
    assert config["max_batch_size"] > 0
    assert {each["name"]: each["shape"] for each in metadata["outputs"]} == {"double": [-1, 2], "echo": [-1]}
    for described, configured in zip(metadata["outputs"], config["output"], strict=True):
        assert described["shape"] == [-1, *configured["dims"]]
        assert outputs[described["name"]][1:] == configured["dims"]


@pytest.fixture
def face() -> Iterator[Face]:
    with doubling_service() as (service, model):
        yield Face(service, model)


def tensor(data: Any = None, size: int | None = None, **more: Any) -> dict[str, Any]:
    shown = {"name": "x", "datatype": "FP32", "shape": [2, 2], **more}
    return shown | ({"data": data} if size is None else {"parameters": {"binary_data_size": size}})


def told(reply: Reply) -> Any:
    return json.loads(reply.body)


def test_json_in_and_json_out(face: Face) -> None:
    reply = face.infer({"id": "seven", "inputs": [tensor([1, 2, 3, 4.5])]})
    assert reply.status == 200
    assert told(reply) == {
        "model_name": "m",
        "model_version": "1",
        "id": "seven",
        "outputs": [
            {"name": "double", "datatype": "FP32", "shape": [2, 2], "data": [2, 4, 6, 9]},
            {"name": "echo", "datatype": "BYTES", "shape": [2], "data": ["", ""]},
        ],
    }
    assert dict(reply.headers)[b"server-timing"].startswith(b"admit;")


def test_bytes_in_and_bytes_out_behind_the_json(face: Face) -> None:
    words = tensor(size=11, name="word", datatype="BYTES", shape=[2])
    asked = {"inputs": [tensor(size=16), words], "parameters": {"binary_data_output": True}}
    reply = face.infer(asked, np.arange(4, dtype="<f4").tobytes() + b"\x01\0\0\0a\x02\0\0\0\xc3\xa9")
    assert reply.status == 200, reply.body
    size = int(dict(reply.headers)[b"inference-header-content-length"])
    outputs = json.loads(reply.body[:size])["outputs"]
    assert [each["parameters"]["binary_data_size"] for each in outputs] == [16, 11]
    assert np.frombuffer(reply.body[size : size + 16], "<f4").tolist() == [0, 2, 4, 6]
    assert reply.body[size + 16 :] == b"\x01\0\0\0a\x02\0\0\0\xc3\xa9"
    assert reply.content_type == b"application/octet-stream"


def test_each_output_may_be_wanted_in_its_own_way(face: Face) -> None:
    outputs = [{"name": "echo"}, {"name": "double", "parameters": {"binary_data": True}}]
    reply = face.infer({"inputs": [tensor([[1, 2], [3, 4]])], "outputs": outputs})
    size = int(dict(reply.headers)[b"inference-header-content-length"])
    echo, double = json.loads(reply.body[:size])["outputs"]
    assert (echo["name"], echo["data"], double["name"]) == ("echo", ["", ""], "double")
    assert np.frombuffer(reply.body[size:], "<f4").tolist() == [2, 4, 6, 8]


def test_nan_and_infinity_are_data_in_binary(face: Face) -> None:
    given = np.array([np.nan, np.inf, -np.inf, 1], "<f4")
    asked = {"inputs": [tensor(size=16)], "outputs": [{"name": "double", "parameters": {"binary_data": True}}]}
    reply = face.infer(asked, given.tobytes())
    assert np.array_equal(np.frombuffer(reply.body[-16:], "<f4"), 2 * given, equal_nan=True)
    in_json = face.infer({"inputs": [tensor(size=16)]}, given.tobytes())
    assert (in_json.status, told(in_json)["error"]) == (
        400,
        "output 'double': 'JSON' cannot be used because the output contains NaN or infinity; request the output with "
        "`binary_data: true`",
    )


@pytest.mark.parametrize(
    ("asked", "tail", "error"),
    [
        (b"", b"", "body: expected a request as described in /openapi.json"),
        (b"[]", b"", "body: expected an object, not a list"),
        (b'{"inputs": ' + b"[" * 5000, b"", r"inputs\[0\]: expected"),
        ({}, b"", "inputs: expected a value; this field is required"),
        ({"inputs": [tensor([1.0])]}, b"", "input 'x': '1 values'.*4 values"),
        ({"inputs": [tensor(None, shape=[2, 2])]}, b"", "input 'x': "),
        ({"inputs": [tensor(size=17)]}, bytes(16), "'binary_data_size 17'.*at most 16, the bytes that are left"),
        ({"inputs": [tensor(size=-1)]}, bytes(16), "input 'x': 'binary_data_size -1'"),
        ({"inputs": [tensor(size=16)]}, bytes(20), "body: '4 extra bytes'"),
        ({"inputs": [tensor(size=16) | {"data": [1]}]}, bytes(16), "input 'x': 'binary_data_size 16 and data'"),
        ({"inputs": [tensor(size=16)]}, b"", "input 'x': 'binary_data_size 16'.*at most 0, the bytes that are left"),
        ({"inputs": [tensor([1]) | {"parameters": {"shared_memory_region": "r"}}]}, b"", "input 'x': 'shared memory'"),
        ({"inputs": [tensor([1, 2, 3, 4])], "outputs": [{"name": "y"}]}, b"", "'y'.*these outputs: double, echo"),
        ({"inputs": [tensor([1])], "outputs": [{"name": "double", "parameters": {"classification": 2}}]}, b"",
         "output 'double' cannot be used to ask for the classification"),
        ({"inputs": [tensor([1, 2, 3, 4])], "parameters": {"timeout": -1}}, b"", "timeout"),
        ({"inputs": [tensor([1, 2, 3, 4])], "parameters": {"timeout": 10**10}}, b"", "timeout: .*3,600,000,000"),
        ({"inputs": [tensor([1, 2, 3, 4])], "parameters": {"priority": "high"}}, b"", "priority"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_used_is_told_why(face: Face, asked: Any, tail: bytes, error: str) -> None:
    reply = face.infer(asked, tail)
    assert reply.status == 400
    assert re.search(error, told(reply)["error"])


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "999999", "²"])
def test_a_length_of_json_that_is_none_is_refused(face: Face, length: str) -> None:
    reply = face.infer({"inputs": [tensor(size=16)]}, bytes(16), inference_header_content_length=length)
    assert (reply.status, "inference-header-content-length" in told(reply)["error"]) == (400, True)


def test_too_many_rows_are_refused_before_they_are_made(face: Face) -> None:
    rows = 50_000_000
    reply = face.infer({"inputs": [tensor(size=rows, datatype="BOOL", shape=[rows])]}, bytes(rows))
    assert (reply.status, told(reply)["error"]) == (
        413,
        f"input 'x': too large (50,000,000 rows); expected at most {MOST_ROWS} rows in a request",
    )


def test_json_that_is_too_large_is_refused_before_it_is_read(face: Face) -> None:
    reply = face.infer(b'{"inputs": "' + b"x" * (17 << 20) + b'"}')
    assert (reply.status, "large tensors as binary data" in told(reply)["error"]) == (413, True)


@pytest.mark.parametrize("given", ["1e-300", "0.001", "0.999", "0", "-1", "nan", "inf", "3600001"])
def test_a_timeout_that_nothing_can_meet_is_refused(face: Face, given: str) -> None:
    reply = face.infer({"inputs": [tensor([1, 2, 3, 4])]}, x_request_timeout_ms=given)
    assert reply.status == 400
    assert "x-request-timeout-ms" in told(reply)["error"]
    assert "from 1 to 3,600,000" in told(reply)["error"]


def test_a_request_that_is_late_is_told_nothing_of_our_clock(face: Face) -> None:
    reply = face.infer({"inputs": [tensor([1, 2, 3, 4])], "parameters": {"timeout": 1}})
    assert reply.status == 504
    assert "clock" not in told(reply)["error"]


def test_the_sooner_of_the_timeouts_is_the_deadline(face: Face) -> None:
    asked = {"inputs": [tensor([1, 2, 3, 4])]}
    late = face.infer(asked | {"parameters": {"timeout": 1}})
    assert late.status == 504
    assert b"the header x-request-timeout-ms (milliseconds) sets a longer timeout" in late.body
    assert face.infer(asked | {"parameters": {"timeout": 1}}, x_request_timeout_ms="9000").status == 504
    assert face.infer(asked | {"parameters": {"timeout": 0, "priority": 1}}).status == 200


def test_every_path_that_describes_answers(face: Face) -> None:
    assert told(face.asked("GET", "/v2"))["name"] == "twoshift"
    assert told(face.asked("GET", "/v2/health/live")) == {"live": True}
    assert told(face.asked("GET", "/v2/health/ready")) == {"ready": True}
    for model in ("/v2/models/m", "/v2/models/m/versions/1"):
        assert told(face.asked("GET", model))["versions"] == ["1"]
        assert told(face.asked("GET", f"{model}/ready")) == {"ready": True}
        assert told(face.asked("GET", f"{model}/config"))["max_batch_size"] == MOST_ROWS
        assert told(face.asked("GET", f"{model}/stats"))["model_stats"][0]["name"] == "m"
    assert told(face.asked("GET", "/v2/models/stats"))["model_stats"][0]["name"] == "m"
    assert told(face.asked("POST", "/v2/repository/index")) == [{"name": "m", "version": "1", "state": "READY"}]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/n", 404),
        ("GET", "/v2/models/m/versions/2", 404),
        ("POST", "/v2/models/m/versions/2/infer", 404),
        ("POST", "/v2/repository/models/m/load", 400),  # nobody loads models here
        ("POST", "/v2/repository/models/m/unload", 400),
    ],
)
def test_what_cannot_be_asked_is_told(face: Face, method: str, path: str, status: int) -> None:
    reply = face.asked(method, path)
    assert reply.status == status
    assert isinstance(told(reply)["error"], str)


def test_a_model_cannot_be_loaded_differently(face: Face) -> None:
    reply = face.asked("POST", "/v2/repository/models/m/load", b'{"parameters": {"config": "{}"}}')
    assert (reply.status, "with the settings of its own configuration" in told(reply)["error"]) == (
        400,
        True,
    )


def test_a_server_that_goes_down_is_not_ready(face: Face) -> None:
    face.service.drain()
    for path in ("/v2/health/ready", "/v2/models/m/ready"):
        reply = face.asked("GET", path)
        assert (reply.status, told(reply)["error"].startswith("the server is shutting down")) == (503, True)
    assert told(face.asked("POST", "/v2/repository/index"))[0]["state"] == "UNAVAILABLE"
    assert told(face.asked("POST", "/v2/repository/index", b'{"ready": true}')) == []


def test_statistics_count_what_was_asked(face: Face) -> None:
    for _ in range(3):
        face.infer({"inputs": [tensor([1, 2, 3, 4])]})
    face.infer({"inputs": [tensor([1])]})
    found = told(face.asked("GET", "/v2/models/m/stats"))["model_stats"][0]
    assert (found["inference_count"], found["execution_count"]) == (6, 3)
    durations = found["inference_stats"]
    assert {name: each["count"] for name, each in durations.items()} == {
        "success": 3, "fail": 1, "queue": 3, "compute_input": 3, "compute_infer": 3, "compute_output": 3,
    }  # fmt: skip
    assert durations["success"]["ns"] > durations["compute_infer"]["ns"] > 0


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"br, deflate;q=0.5, gzip", b"gzip"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip;q=0.0", None),
        (b"br", None),
        (b"identity", None),
        (None, None),
    ],
)
def test_a_reply_is_packed_as_its_client_asks(accepted: bytes | None, encoding: bytes | None) -> None:
    for size in (2_000, 200_000):
        body = b"0.125," * (size // 6)
        reply = asyncio.run(packed(Reply(200, body), accepted))
        assert dict(reply.headers).get(b"content-encoding") == encoding
        unpack = {b"gzip": gzip.decompress, b"deflate": zlib.decompress, None: lambda same: same}[encoding]
        assert unpack(reply.body) == body
        assert encoding is None or len(reply.body) < size / 10


def test_a_small_reply_is_left_as_it_is() -> None:
    reply = asyncio.run(packed(Reply(200, b"{}"), b"gzip"))
    assert (reply.body, reply.headers) == (b"{}", [])


@pytest.mark.parametrize("size", [None, 5])
def test_text_that_is_no_utf_8_is_a_400_that_names_tensor_and_element(face: Face, size: int | None) -> None:
    parameters = "" if size is None else f', "parameters": {{"binary_data_size": {size}}}'
    data = b', "data": ["a", "\xff"]' if size is None else b""
    shape = "[2]" if size is None else "[1]"
    head = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": %b%b%b}]}' % (
        shape.encode(), parameters.encode(), data,
    )  # fmt: skip
    reply = face.infer(head, b"" if size is None else b"\x01\0\0\0\xff")
    assert reply.status == 400
    assert b"input 'x': b'\\xff" in reply.body.replace(b"\\\\", b"\\")
    assert (b"element 1 is invalid" if size is None else b"element 0 is invalid") in reply.body
