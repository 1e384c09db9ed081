"""Several front processes on one port: answers, counts, limits, ends and crashes are those of one server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import PROGRAM, command, environment
from servers import Server, until
from test_replicas import SOURCE, children, lives

for needs in ("httptools", "sqlalchemy", "pyarrow"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
FRONTS = 2
PATIENT = {"x_request_timeout_ms": "30000"}


def fronts_of(server: Server) -> set[int]:
    """The processes that listen beside the main one: replicas hold no socket of the port."""
    return {pid for pid in children(server.process.pid) if _listens(pid, server.port)}


def _listens(pid: int, port: int) -> bool:
    links = set[str]()
    try:
        fields = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # just closed
                links.add(str(each.readlink()))
    except OSError:
        return False
    return any(
        f"socket:[{each[9]}]" in links for each in fields if each[3] == "0A" and each[1].endswith(f":{port:04X}")
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fronts")
    (made / "m.py").write_text(SOURCE)
    return made


def started(folder: Path, *words: str) -> Server:
    return Server(folder / "home", f"{folder}/m.py:Sized", "--slo-ms", "60000", "--fronts", str(FRONTS), *words)


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Server]:
    """For tests that leave it as they found it."""
    server = started(folder)
    yield server
    server.end()


def embed(client: httpx.Client, text: str) -> httpx.Response:
    return client.post(
        "/v1/embeddings", json={"model": "Sized", "input": text}, headers={"x-request-timeout-ms": "30000"}
    )


def test_every_front_answers_and_what_they_count_is_one_servers(shared: Server) -> None:
    assert len(fronts_of(shared)) == FRONTS
    before = shared.counted("requests_total", status="200")
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda size: shared.embed("Sized", "a" * size, **PATIENT), range(1, 101)))
    assert [each.status for each in got] == [200] * 100
    assert [each.json()["data"][0]["embedding"][0] for each in got] == list(range(1, 101))
    assert shared.counted("requests_total", status="200") - before == 100
    assert shared.counted("fronts") == FRONTS
    assert shared.counted("request_seconds_count") >= 100
    until(lambda: shared.counted("rows_total", lane="online") >= 100)


def test_connections_are_dealt_out_evenly(shared: Server) -> None:
    made = [httpx.Client(base_url=shared.address, timeout=120) for _ in range(24)]
    try:
        for each in made:
            assert embed(each, "a").status_code == 200
        held = [_established(pid, shared.port) for pid in fronts_of(shared)]
        assert sum(held) == 24
        assert max(held) - min(held) <= 4
    finally:
        for each in made:
            each.close()


def _established(pid: int, port: int) -> int:
    links = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
    fields = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(
        f"socket:[{each[9]}]" in links for each in fields if each[3] == "01" and each[1].endswith(f":{port:04X}")
    )


def test_clients_find_everything_at_the_one_address(shared: Server) -> None:
    client = openai.OpenAI(base_url=f"{shared.address}/v1", api_key="none")
    assert [each.id for each in client.models.list().data] == ["Sized"]
    found = client.embeddings.create(model="Sized", input=["a", "bb"], encoding_format="float")
    assert [each.embedding[0] for each in found.data] == [1, 2]
    lines = [
        {"custom_id": f"{k}", "method": "POST", "url": "/v1/embeddings", "body": {"model": "Sized", "input": "a" * k}}
        for k in range(1, 21)
    ]
    sent = client.files.create(file=("a.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=sent.id, endpoint="/v1/embeddings", completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status == "completed")
    output = client.batches.retrieve(batch.id).output_file_id
    assert output is not None
    assert len(client.files.content(output).text.splitlines()) == 20
    assert shared.ask("GET", "/readyz").status == 200
    assert shared.ask("GET", "/nowhere").status == 404
    assert shared.ask("POST", "/v1/nothing", {}).status == 404
    assert shared.embed("unknown", "a").status == 404
    derived = shared.ask("GET", "/v1/derived/Sized").json()
    assert derived["capacity_rows_per_s"] > 0


def test_a_job_runs_on_the_replicas_of_fronts(shared: Server, folder: Path) -> None:
    pq.write_table(pa.table({"id": range(300), "text": ["a" * (1 + k % 9) for k in range(300)]}), folder / "in.parquet")
    words = ["run", str(folder / "in.parquet"), "--model", "Sized", "--text", "text", "--keep", "id"]
    words += ["-o", str(folder / "out"), "--on", shared.address]
    done = command(*words, env={"TWOSHIFT_HOME": str(folder / "home")})
    assert done.returncode == 0, done.stderr
    found = pq.read_table(folder / "out").sort_by("id")
    assert found["id"].to_pylist() == list(range(300))
    assert [each[0] for each in found["embedding"].to_pylist()] == [1 + k % 9 for k in range(300)]


def test_a_killed_front_is_replaced_and_counts_never_go_back(folder: Path) -> None:
    server = started(folder)
    try:
        for _ in range(20):
            assert server.embed("Sized", "a", **PATIENT).status == 200
        before = server.counted("requests_total", status="200")
        assert before == 20
        old = fronts_of(server)
        victim = min(old)
        os.kill(victim, signal.SIGKILL)
        until(lambda: not lives(victim))
        for _ in range(20):  # who connects to the missing one waits for the next
            assert server.embed("Sized", "a", **PATIENT).status == 200
        assert len(fronts_of(server)) == FRONTS
        assert fronts_of(server) != old
        assert server.counted("requests_total", status="200") == before + 20
        assert server.stop() == 0
    finally:
        server.end()


def test_a_front_that_hangs_is_replaced(folder: Path) -> None:
    server = started(folder)
    try:
        victim = min(fronts_of(server))
        os.kill(victim, signal.SIGSTOP)
        until(lambda: not lives(victim))
        until(lambda: len(fronts_of(server)) == FRONTS)
        assert [server.embed("Sized", "a", **PATIENT).status for _ in range(10)] == [200] * 10
    finally:
        server.end()


def test_a_killed_replica_is_replaced_under_the_fronts_and_costs_no_request(folder: Path, tmp_path: Path) -> None:
    server = started(folder, "--replicas", "2")
    try:
        replicas = children(server.process.pid) - fronts_of(server)
        assert len(replicas) == 2
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(server.embed, "Sized", f"wait {tmp_path}/gate", **PATIENT)
            until(lambda: [*tmp_path.glob("gate.*")])
            (victim,) = [int(each.suffix[1:]) for each in tmp_path.glob("gate.*")]
            os.kill(victim, signal.SIGKILL)
            until(lambda: len([*tmp_path.glob("gate.*")]) == 2)  # the other one runs it
            (tmp_path / "gate").touch()
            assert begun.result().status == 200
        assert [server.embed("Sized", "a", **PATIENT).status for _ in range(30)] == [200] * 30
        until(lambda: server.counted("replicas", state="ready") == 2)
        until(lambda: len({_who(server) for _ in range(20)}) == 2)
    finally:
        server.end()


def _who(server: Server) -> int:
    return int(server.embed("Sized", "a", **PATIENT).json()["data"][0]["embedding"][1])


def test_a_reload_loses_no_request(folder: Path) -> None:
    server = started(folder)
    statuses, stop = Counter[int](), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=server.address, timeout=120) as client:
            while not stop.is_set():
                statuses[embed(client, "abc").status_code] += 1

    try:
        first = _who(server)
        threads = [threading.Thread(target=ask) for _ in range(6)]
        for each in threads:
            each.start()
        until(lambda: statuses[200] > 50)
        assert server.ask("POST", "/v2/repository/models/Sized/load", {}).status == 200
        assert _who(server) != first
        seen = statuses[200]
        until(lambda: statuses[200] > seen + 50)
        assert server.ask("POST", "/v2/repository/models/Sized/unload", {}).status == 200
        assert server.embed("Sized", "a").status in (404, 503)
        stop.set()
        for each in threads:
            each.join()
        assert set(statuses) <= {200, 404, 503}
        assert server.ask("POST", "/v2/repository/models/Sized/load", {}).status == 200
        assert server.embed("Sized", "a", **PATIENT).status == 200
    finally:
        stop.set()
        server.end()


def test_what_was_admitted_is_answered_before_the_end(folder: Path) -> None:
    server = started(folder)
    gate = folder / "gate"
    try:
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(server.embed, "Sized", f"wait {gate} {k}", **PATIENT) for k in range(4)]
            until(lambda: any(folder.glob("gate.*")))
            until(lambda: server.counted("host_requests") == 4)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: "stopping" in server.said)
            gate.touch()
            assert [each.result().status for each in waiting] == [200] * 4
        assert server.process.wait(60) == 0
        assert not children(server.process.pid)
    finally:
        server.end()


def test_the_limit_of_a_key_holds_over_all_fronts(folder: Path) -> None:
    lines = [f"fronts = {FRONTS}", f'[models.Sized]\nmodel = "{folder}/m.py:Sized"\nslo_ms = 60000']
    limits = {"few": "requests_per_minute = 6", "narrow": "concurrency = 2", "free": 'scopes = ["admin"]'}
    for name, more in limits.items():
        digest = hashlib.sha256(f"ts-{name}".encode()).hexdigest()
        lines.append(f'[keys.{name}]\nsha256 = "{digest}"\n{more}')
    (folder / "server.toml").write_text("\n".join(lines))
    server = Server(folder / "home", "--config", str(folder / "server.toml"))
    gate = folder / "narrow"

    def ask(who: str, text: str) -> int:
        return server.embed("Sized", text, authorization=f"Bearer ts-{who}", **PATIENT).status

    try:
        with ThreadPoolExecutor(12) as pool:
            assert Counter(pool.map(lambda _: ask("few", "a"), range(12))) == {200: 1, 429: 11}
            waiting = [pool.submit(ask, "narrow", f"wait {gate}") for _ in range(8)]
            until(lambda: sum(each.done() for each in waiting) == 6)
            gate.touch()
            assert Counter(each.result() for each in waiting) == {200: 2, 429: 6}
            assert ask("narrow", "a") == 200
            assert ask("unknown", "a") == 401
        admin = {"authorization": "Bearer ts-free"}
        assert server.ask("GET", "/metrics", headers=admin).status == 200
        assert server.ask("GET", "/v1/usage", headers=admin).status == 200
    finally:
        server.end()


def test_a_second_server_is_refused_the_port(shared: Server, folder: Path) -> None:
    words = [PROGRAM, "serve", f"{folder}/m.py:Sized", "--port", str(shared.port), "--fronts", "2"]
    done = subprocess.run(words, env=environment(folder / "home"), capture_output=True, text=True, timeout=150)
    assert done.returncode == 2
    assert "port" in done.stderr
    assert "free" in done.stderr
