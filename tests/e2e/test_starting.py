"""A server answers from its start: it lives, it is not ready, and it says why."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import PROGRAM, environment
from servers import until

from twoshift.serve.keys import digest_of

pytestmark = pytest.mark.slow
MODEL = '''
import os, time
import numpy as np

class Slow:
    """Loads once a file says so; fails where the file does."""

    outputs = ("embedding",)
    example = "a"

    def load(self):
        gate = os.environ["GATE"]
        while not os.path.exists(gate):
            time.sleep(0.01)
        if open(gate).read():
            raise RuntimeError("these weights are damaged")

    def predict(self, batch):
        return {"embedding": np.ones((len(next(iter(batch.values()))), 2))}

    def prepare(self, rows):
        return {"size": np.array([len(row) for row in rows])}
'''


class Started:
    def __init__(self, process: subprocess.Popen[str], gate: Path) -> None:
        self.process, self.gate, self.said = process, gate, ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(lambda: "Listening at" in self.said or process.poll() is not None)
        self.port = int(re.findall(r"Listening at http://127.0.0.1:(\d+)", self.said)[0])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def ended(self) -> int:
        code = self.process.wait(120)
        self._reader.join()
        return code

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body, {"authorization": "Bearer k"})
        reply = connection.getresponse()
        found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode()
        connection.close()
        return found


@contextmanager
def started(folder: Path, port: int = 0, more: str = "") -> Iterator[Started]:
    (folder / "slow.py").write_text(MODEL)
    config = folder / "serve.toml"
    model = f'[models.slow]\nmodel = "{folder / "slow.py"}:Slow"\nslo_ms = 5000\n{more}'
    config.write_text(
        f'port = {port}\naccess_log = true\n{model}[keys.k]\nsha256 = "{digest_of("k")}"\nscopes = ["admin"]\n'
    )
    gate = folder / "gate"
    env = environment(folder, GATE=str(gate))
    process = subprocess.Popen([PROGRAM, "serve", "--config", str(config)], env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield Started(process, gate)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_a_server_says_what_it_loads_and_then_answers(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with started(tmp_path) as server:
        body = json.dumps({"model": "slow", "input": "a"}).encode()
        until(lambda: "slow is loading" in server.ask("GET", "/readyz")[2])
        status, headers, told = server.ask("GET", "/readyz")
        assert (status, json.loads(told)["status"]) == (503, "not ready")
        assert "retry-after" in headers
        assert server.ask("GET", "/healthz")[0] == server.ask("GET", "/v2/health/live")[0] == 200
        assert server.ask("GET", "/v2/health/ready")[0] == 503
        for path in ("/v1/embeddings", "/v1/nothing", "/v2/models/slow/infer"):
            for sent in (body, b"x" * 3_000_000):
                status, headers, told = server.ask("POST", path, sent)
                assert (status, headers.get("retry-after")) == (503, "2"), (path, told)
                assert "slow is loading" in told
        assert "Ready at" not in server.said
        server.gate.touch()
        until(lambda: server.ask("GET", "/readyz")[0] == 200)
        status, _, told = server.ask("POST", "/v1/embeddings", body)
        assert status == 200, told
        until(lambda: "curl" in server.said)
        assert f"Ready at http://127.0.0.1:{server.port}\n" in server.said
        assert 'curl -H "Authorization: Bearer $KEY" http://127.0.0.1' in server.said

        for path in ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready", "/v1/models"):
            assert server.ask("GET", path)[0] == 200
        until(lambda: "/v1/models" in server.said)
        answered = re.findall(r'"GET (\S+)" 200', server.said)
        assert answered == ["/v1/models"]  # probes that succeed are not worth a line
        taken_ms = [float(each) for each in re.findall(r'" \d+ (\S+) ms', server.said)]
        assert max(taken_ms) <= 1e3 * (time.monotonic() - began_s)


def test_a_model_that_does_not_load_ends_the_program_with_its_message(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        assert server.ask("GET", "/healthz")[0] == 200
        server.gate.write_text("fail")
        assert server.ended() not in (0, None)
        assert "these weights are damaged" in server.said
        assert "Ready at" not in server.said


def children(process: int) -> list[int]:
    """Of a process, and of those."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    ours = [int(pid) for each in found for pid in each.read_text().split()]
    return [*ours, *(pid for each in ours for pid in children(each))]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_notice_to_stop_while_the_first_model_loads_ends_it_like_any_other(tmp_path: Path, replicas: int) -> None:
    with started(tmp_path, more=f"replicas = {replicas}\n") as server:
        until(lambda: "slow is loading: Loading" in server.ask("GET", "/readyz")[2])
        running = children(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert "stopping: waiting up to" in server.said.splitlines()[-1]
        assert "Traceback" not in server.said
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in running))


def test_a_notice_to_stop_is_obeyed_from_the_first_line_on(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0


def test_a_port_that_is_taken_is_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "slow.py").write_text(MODEL)
        env = environment(tmp_path, GATE=str(tmp_path / "never"))
        words = [PROGRAM, "serve", f"{tmp_path / 'slow.py'}:Slow", "--port", str(port)]
        ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "in use" in ended.stderr
