"""Rows that are looked up in a store first: a user's `async def prepare(self, row)`, in both shifts."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import PROGRAM, environment
from servers import Got, Server, until

pytestmark = pytest.mark.slow
MODEL = "Looked"


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    made = Server(home, f"{home / 'models.py'}:{MODEL}", "--slo-ms", "60000")
    yield made
    made.end()


def stage_ms(got: Got, name: str) -> float:
    found = re.search(rf"{name};dur=([\d.]+)", got.headers["server-timing"])
    assert found
    return float(found[1])


def test_the_rows_of_a_request_are_looked_up_side_by_side(server: Server) -> None:
    got = server.embed(MODEL, ["look 0.2"] * 40)
    assert got.status == 200
    assert [each["embedding"] for each in got.json()["data"]] == [[8.0, 40.0]] * 40  # all of them at once
    assert 200 <= stage_ms(got, "lookup") < 40 * 200
    assert stage_ms(got, "forward") < stage_ms(got, "lookup")
    assert server.counted("stage_seconds_count", stage="lookup") >= 1


def test_lookups_end_with_the_deadline(server: Server) -> None:
    got = server.embed(MODEL, ["a", "look 30"], x_request_timeout_ms="300")
    assert got.status == 504
    assert "lookups" in got.message
    assert server.embed(MODEL, "a").status == 200


def test_a_lookup_that_fails_is_told_with_its_row(server: Server) -> None:
    got = server.embed(MODEL, ["a", "b", "unknown user", "look 0.1"])
    assert got.status == 400
    assert "input[2]" in got.message
    assert "no such user" in got.message


def test_a_store_that_does_not_answer_is_not_the_clients_fault(server: Server) -> None:
    got = server.embed(MODEL, ["a", "down"])
    assert got.status == 503
    assert got.headers["retry-after"] == "1"
    assert "row 1" in got.message
    assert server.ask("GET", "/readyz").status == 200


def test_a_client_that_hangs_up_ends_its_lookups(server: Server) -> None:
    calls = server.counted("calls_total")
    body = json.dumps({"model": MODEL, "input": ["look 2"]}).encode()
    with server.connect() as made:
        made.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.counted("http_connections") == 2)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no half-close
    until(lambda: server.counted("requests_total", status="499") == 1)
    assert server.counted("calls_total") == calls


def test_the_same_class_does_a_job(home: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out"
    texts = [f"look 0.00{number % 10}" for number in range(500)]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    model = f"{home / 'models.py'}:{MODEL}"
    words = [PROGRAM, "run", str(source), "--model", model, "--output", str(output), "--output-format", "jsonl"]
    ended = subprocess.run(words, env=environment(home), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for part in sorted(output.glob("*.jsonl")) for line in part.read_text().splitlines()]
    assert [row["embedding"][0] for row in rows] == [10.0] * 500
    assert max(row["embedding"][1] for row in rows) > 1  # side by side here, too
