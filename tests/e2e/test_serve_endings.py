"""How a server ends, and what it says when its model does not come back."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import PROGRAM, environment
from servers import Server, until

pytestmark = pytest.mark.slow
MODEL = "Troubled"


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def begin(*words: str) -> Server:
        started.append(Server(home, f"{home / 'models.py'}:{MODEL}", *words))
        return started[-1]

    yield begin
    for server in started:
        server.end()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def patient(server: Server, given: str) -> int:
    try:
        return server.embed(MODEL, given, x_request_timeout_ms="60000").status
    except (OSError, http.client.HTTPException):
        return 0  # no answer at all


def test_what_was_admitted_is_answered_after_the_notice_to_stop(
    start: Callable[..., Server], pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    server = start("--slo-ms", "60000")
    idle = server.connect()
    running = pool.submit(patient, server, f"sleep 2 {tmp_path / 'told'}")
    until((tmp_path / "told").exists)
    waiting = [pool.submit(patient, server, "a") for _ in range(3)]
    until(lambda: server.counted("waiting_rows") == 3)
    server.process.send_signal(signal.SIGTERM)
    assert idle.recv(1) == b""  # nothing was asked there
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    assert not running.done()
    assert [each.result() for each in (running, *waiting)] == [200] * 4
    assert server.process.wait(120) == 0
    assert "Traceback" not in server.said


def test_requests_sent_ahead_are_refused_once_it_stops(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start("--slo-ms", "60000")
    told = tmp_path / "told"
    body = b'{"model": "Troubled", "input": "sleep 1 %b"}' % str(told).encode()
    with server.connect() as made:
        made.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\nx-request-timeout-ms: 9000\r\ncontent-length: %d\r\n\r\n"
            % len(body)
        )
        made.sendall(body + b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")
        until(told.exists)
        server.process.send_signal(signal.SIGTERM)
        found = b""
        while data := made.recv(1 << 16):
            found += data
    assert found.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 503 Service Unavailable" in found
    assert b"the server is shutting down" in found
    assert found.count(b"connection: close") == 1
    assert server.process.wait(120) == 0


def test_where_the_grace_runs_out_it_ends_all_the_same_and_says_so(
    start: Callable[..., Server], pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    server = start("--slo-ms", "60000", "--grace", "1s")
    running = pool.submit(patient, server, f"sleep 50 {tmp_path / 'told'}")
    until((tmp_path / "told").exists)
    assert server.stop() == 1
    assert running.result() == 0
    assert "Some requests or processes did not end within the grace period of 1s" in server.said


def test_a_second_notice_does_not_wait_for_the_grace(
    start: Callable[..., Server], pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    server = start("--slo-ms", "60000", "--grace", "10m")
    running = pool.submit(patient, server, f"sleep 50 {tmp_path / 'told'}")
    until((tmp_path / "told").exists)
    server.process.send_signal(signal.SIGINT)
    until(lambda: "send a second signal to stop now" in server.said)
    assert server.process.poll() is None
    assert server.stop(signal.SIGINT) == 1
    assert running.result() == 0


@pytest.mark.parametrize("stuck", ["sleep 50", "wait 50"])
def test_code_that_does_not_come_back_does_not_hold_up_the_end(start: Callable[..., Server], stuck: str) -> None:
    server = start("--slo-ms", "1000", "--grace", "2s")
    assert server.embed(MODEL, stuck).status == 504
    assert server.stop() == 1


def test_a_model_that_is_stuck_makes_the_server_unready_until_it_comes_back(start: Callable[..., Server]) -> None:
    server = start("--slo-ms", "100")
    assert server.embed(MODEL, "sleep 8").status == 504
    until(lambda: server.ask("GET", "/readyz").status == 503)
    got = server.ask("GET", "/readyz")
    assert got.headers["retry-after"] == "1"
    assert f"{MODEL}: a call has been running on the device for" in got.json()["reason"]
    assert server.ask("GET", "/healthz").status == 200
    assert server.counted("healthy") == 0
    until(lambda: "not ready: Troubled: a call has been running on the device" in server.said)
    until(lambda: server.ask("GET", "/readyz").status == 200)
    until(lambda: "the server is ready again" in server.said)
    assert server.embed(MODEL, "a").status == 200
    assert server.embed(MODEL, "wait 8").status == 504
    until(lambda: "in preparation" in server.ask("GET", "/readyz").body.decode())


def test_a_device_that_is_lost_makes_the_server_unready_for_good(start: Callable[..., Server]) -> None:
    server = start("--slo-ms", "60000")
    assert server.embed(MODEL, "lost").status == 500
    for _ in range(50):
        got = server.embed(MODEL, "a")
        assert got.status == 500
        assert "the GPU is lost" in got.message
    got = server.ask("GET", "/readyz")
    assert got.status == 503
    assert got.json()["reason"] == f"{MODEL}: the GPU is lost"
    assert server.counted("healthy") == 0
    until(lambda: f"not ready: {MODEL}: the GPU is lost" in server.said)
    assert len(server.said) < 20_000  # one line for each that was refused
    assert server.stop() == 0


def test_an_address_that_is_taken_is_refused_with_its_name(start: Callable[..., Server], home: Path) -> None:
    server = start("--slo-ms", "60000")
    words = [PROGRAM, "serve", f"{home / 'models.py'}:{MODEL}", "--port", str(server.port)]
    ended = subprocess.run(words, env=environment(home), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert f"127.0.0.1:{server.port}" in ended.stderr
    assert "--port" in ended.stderr
    assert "Loading" not in ended.stderr  # a large model would have taken minutes first


def test_each_request_is_a_line_where_that_is_asked_for(start: Callable[..., Server]) -> None:
    server = start("--slo-ms", "60000", "--access-log")
    assert server.embed(MODEL, "a", x_request_id="mine").status == 200
    assert server.ask("GET", "/nowhere").status == 404
    until(lambda: "/nowhere" in server.said)
    assert re.search(r'"POST /v1/embeddings" 200 [\d.]+ ms, anyone, mine', server.said)
    assert re.search(r'"GET /nowhere" 404 [\d.]+ ms, anyone, [0-9a-f]{32}', server.said)


def test_with_log_format_json_every_line_is_an_object_and_a_request_names_its_model_rows_and_tenant(
    start: Callable[..., Server],
) -> None:
    server = start("--slo-ms", "60000", "--access-log", "--log-format", "json")
    assert server.embed(MODEL, ["a", "b"], x_request_id="mine").status == 200
    assert server.ask("GET", "/healthz").status == server.ask("GET", "/metrics").status == 200
    assert server.ask("GET", "/nowhere").status == 404
    assert server.stop() == 0
    until(lambda: "stopping" in server.said)
    lines = [json.loads(line) for line in server.said.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    answered, unknown = (line for line in lines if line["logger"] == "twoshift.access")
    assert answered["message"] == "POST /v1/embeddings"
    assert answered["request_id"] == "mine"
    assert (answered["status"], answered["rows"], answered["model"]) == (200, 2, MODEL)
    assert answered["version"]
    assert answered["tenant"] == "anyone"
    assert answered["ms"] > 0
    assert (unknown["message"], unknown["status"]) == ("GET /nowhere", 404)
    assert {"stopping", "Ready"} <= {line["message"].split(" ")[0].rstrip(":") for line in lines}
