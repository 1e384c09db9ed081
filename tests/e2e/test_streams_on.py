"""Streams in the micro lane of a running server: `twoshift stream --on`, `twoshift streams`, kills and restarts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from programs import command
from servers import Server, until
from test_replicas import children
from user_models import square

for needs in ("httptools", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
MODEL = square("time.sleep(0.01)", has_example=True)


class Site:
    """A folder with a model, and a server over it that can be started again."""

    def __init__(self, path: Path) -> None:
        self.path, self.more = path, tuple[str, ...]()
        (path / "m.py").write_text(MODEL)
        self.server: Server | None = None

    def started(self) -> None:
        if self.server is not None:
            self.server.end()
        words = [f"{self.path}/m.py:Square", "--slo-ms", "60000", "--max-batch", "8", "--grace", "5s", *self.more]
        self.server = Server(self.path / "home", *words)

    def end(self) -> None:
        if self.server is not None:
            self.server.end()


class Streamed:
    """An inbox and its results."""

    def __init__(self, site: Site, path: Path) -> None:
        self.site, self.path, self.sent = site, path, 0
        (path / "inbox").mkdir()

    @property
    def server(self) -> Server:
        assert self.site.server is not None
        return self.site.server

    def put(self, rows: int) -> None:
        """A file with so many new rows, seen when it is whole."""
        lines = "".join(f'{{"id": {row}, "x": {row}}}\n' for row in range(self.sent, self.sent + rows))
        (self.path / ".new").write_text(lines)
        (self.path / ".new").rename(self.path / "inbox" / f"{self.sent:06d}.jsonl")
        self.sent += rows

    def run(self, *words: str, code: int = 0) -> Any:
        done = command(*words, "--on", self.server.address, "--json", cwd=self.path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    def begun(self, *more: str, output: str = "out", code: int = 0) -> Any:
        given = ["--model", "Square", "--columns", "x", "--keep", "id", "--fresh", "1s", "--settle", "0s"]
        return self.run("stream", "inbox", *given, "-o", output, "--detach", *more, code=code)

    def stream(self, name: str) -> Any:
        return self.server.ask("GET", f"/v1/streams/{name}").json()

    def rows(self, output: str = "out") -> list[tuple[int, float]]:
        found = [pq.read_table(path).to_pylist() for path in sorted((self.path / output).glob("part-*.parquet"))]
        return [(row["id"], row["squared"]) for part in found for row in part]

    def until_committed(self, output: str = "out") -> None:
        until(lambda: len(self.rows(output)) >= self.sent, what=lambda: self.server.said)
        assert sorted(self.rows(output)) == [(row, float(row) ** 2) for row in range(self.sent)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    made.started()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def streamed(site: Site, tmp_path: Path) -> Streamed:
    return Streamed(site, tmp_path)


def test_a_stream_outlives_kills_of_its_server_and_each_row_is_there_once(streamed: Streamed) -> None:
    streamed.put(50)
    begun = streamed.begun()
    assert begun["object"] == "stream"
    assert begun["settings"]["source"] == str(streamed.path / "inbox")
    assert streamed.begun()["id"] == begun["id"]  # who asks again gets the same one
    streamed.until_committed()
    for _ in range(2):
        streamed.put(300)
        until(lambda: any((streamed.path / "out" / "_twoshift" / "staging").glob("part-*")) or streamed.rows()[50:])
        streamed.server.stop(signal.SIGKILL)
        streamed.put(20)
        streamed.site.started()  # nobody asks for the stream again
        streamed.until_committed()
    assert "the server was restarted" in str(streamed.run("streams", "logs", begun["id"]))
    until(lambda: (streamed.stream(begun["id"])["progress"] or {}).get("fresh_p99_s") is not None)
    now = streamed.stream(begun["id"])["progress"]
    assert (now["objective_s"], now["is_behind"], now["held"], now["problems"]) == (1.0, False, "", {})
    assert min(now["rows"], now["device_s"], now["fresh_p50_s"]) > 0
    assert streamed.server.counted("stream_rows_total", stream=begun["id"], model="Square") > 0
    assert streamed.server.counted("stream_objective_seconds", stream=begun["id"]) == 1.0
    assert [each["lane"] for each in streamed.run("usage")["data"]] == ["micro"]
    assert begun["id"] in [each["id"] for each in streamed.run("streams", "list")["data"]]
    assert not streamed.run("jobs", "list")["data"]
    streamed.run("streams", "cancel", begun["id"])


def test_a_stream_is_paused_resumed_cancelled_and_its_folder_is_its_own(streamed: Streamed) -> None:
    streamed.put(30)
    name = streamed.begun()["id"]
    streamed.until_committed()
    assert "writes to this folder" in streamed.begun("--fresh", "9s", code=2)
    job = ("run", "inbox", "--model", "Square", "--columns", "x", "-o", "out", "--detach")
    assert f"{name} writes to this folder" in streamed.run(*job, code=2)
    assert streamed.run("streams", "pause", name)["state"] == "paused"
    until(lambda: streamed.server.counted("stream_objective_seconds", stream=name) == 0)  # nothing works on it
    streamed.put(30)
    streamed.server.stop()
    streamed.site.started()
    assert streamed.stream(name)["state"] == "paused"
    assert len(streamed.rows()) == 30
    streamed.run("streams", "resume", name)
    streamed.until_committed()
    assert streamed.run("streams", "cancel", name)["state"] == "cancelled"
    assert "has ended cannot be cancelled" in streamed.run("streams", "cancel", name, code=2)
    again = streamed.begun("--once")["id"]  # it goes on in the folder, once the cancelled one has left it
    until(lambda: streamed.stream(again)["state"] == "done", what=lambda: streamed.stream(again))
    assert len(streamed.rows()) == streamed.sent


def test_what_a_server_cannot_do_for_a_stream_is_said(streamed: Streamed) -> None:
    for more in (("--into", "x.duckdb", "--into-key", "id"), ("--metrics-port", "9108")):
        assert "the server's own replicas" in streamed.begun(*more, code=2)
    assert "without a password" in streamed.begun("--to", "nats://me:secret@127.0.0.1:4222/results", code=2)
    assert "the id of an existing stream" in streamed.run("streams", "show", "stream-none", code=2)
    streamed.put(5)
    name = streamed.begun("--columns", "y")["id"]  # known with the first rows only
    until(lambda: streamed.stream(name)["state"] == "failed")
    assert "'y'" in streamed.stream(name)["reason"]


def test_a_stream_moves_to_a_server_outlives_its_replicas_and_keeps_precomputed_answers_fresh(tmp_path: Path) -> None:
    site = Site(tmp_path)
    streamed = Streamed(site, tmp_path)
    streamed.put(40)
    words = ["--columns", "x", "--keep", "id", "--settle", "0s", "-o", f"{tmp_path}/out"]
    begun = command("stream", f"{tmp_path}/inbox", "--model", f"{tmp_path}/m.py:Square", *words, "--once")
    assert begun.returncode == 0, begun.stderr
    site.more = ("--replicas", "2", "--precomputed", f"{tmp_path}/out", "--key", "id")
    site.started()
    try:
        name = streamed.begun()["id"]
        for pid in sorted(children(streamed.server.process.pid)):
            streamed.put(200)
            os.kill(pid, signal.SIGKILL)
            streamed.until_committed()
        assert streamed.stream(name)["state"] == "running"
        last = streamed.sent - 1
        asked = {"model": "Square", "keys": [3, last]}
        until(lambda: streamed.server.ask("POST", "/v1/lookup", asked).json()["rows"][1]["found"] == "hit")
        found = streamed.server.ask("POST", "/v1/lookup", asked).json()["rows"]
        assert [row["outputs"]["squared"] for row in found] == [9.0, float(last) ** 2]
        assert streamed.server.stop() == 0, streamed.server.said
        assert len(streamed.rows()) == streamed.sent
    finally:
        site.end()
