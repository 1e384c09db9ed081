"""`twoshift serve --engine ray` on a real Ray cluster of several nodes, all on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAM, python_path
from ray_nodes import Nodes, own_cluster
from servers import Server, until
from test_replicas import SOURCE, embedded
from versioned import Clients, Versions, asked, until_stage

pytest.importorskip("ray.serve", reason="the ray extra is not installed")
pytest.importorskip("sqlalchemy")

# Ray itself leaves a socket open now and then
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


cluster = pytest.fixture(scope="module")(own_cluster)


def started(folder: Path, cluster: Nodes, *words: str) -> Server:
    (folder / "m.py").write_text(SOURCE)
    ray = ["--engine", "ray", "--address", cluster.address]
    return Server(folder / "home", f"{folder}/m.py:Sized", "--slo-ms", "2000", "--max-batch", "4", *ray, *words)


APP = """
import json, sys, urllib.request
import ray
from ray import serve
from twoshift.ray_app import server

address, model = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
serve.start(proxy_location="Disabled")
models = {"sized": {"model": model, "slo_ms": 2000, "max_batch": 4, "replicas": 1}}
made = serve.run(server({"open": True, "host": "127.0.0.1", "port": 0, "models": models}), route_prefix=None)
at = made.remote(None).result().split()[-1]
body = json.dumps({"model": "sized", "input": "abc"}).encode()
with urllib.request.urlopen(f"{at}/v1/embeddings", body, timeout=120) as reply:
    answered = reply.status
with urllib.request.urlopen(f"{at}/-/healthz") as reply:
    healthy = reply.status
there = len(serve.status().applications)
serve.delete("default")
print("found", answered, healthy, there, len(serve.status().applications), flush=True)
serve.shutdown()
"""


def test_a_server_is_an_application_of_ray_serve_and_takes_its_replicas_with_it(cluster: Nodes, tmp_path: Path) -> None:
    cluster.add()
    (tmp_path / "m.py").write_text(SOURCE)
    words = [sys.executable, "-c", APP, cluster.address, f"{tmp_path}/m.py:Sized"]
    env = {**os.environ, "TWOSHIFT_HOME": str(tmp_path / "home"), "PYTHONPATH": python_path()}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=270, env=env)
    finally:
        cluster.clear()
    assert done.returncode == 0, done.stderr
    assert "found 200 200 2 0" in done.stdout.splitlines(), done.stdout  # Ray prints, too


def run_job(server: Server, folder: Path, rows: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"wait {folder}/go {k}" for k in range(rows)]
    pq.write_table(pa.table({"id": range(rows), "text": texts}), folder / "in.parquet")
    words = ["run", str(folder / "in.parquet"), "--model", "Sized", "--text", "text", "--keep", "id"]
    more = ["--shard-rows", "50", "-o", str(folder / "out"), "--detach", "--on", server.address, "--json"]
    sent = subprocess.run([PROGRAM, *words, *more], capture_output=True, text=True, timeout=120, check=True)
    return f"/v1/jobs/{json.loads(sent.stdout)['id']}"


def test_both_shifts_on_two_nodes_and_a_replica_that_dies(cluster: Nodes, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    cluster.add()
    cluster.add()
    server = started(tmp_path, cluster, "--replicas", "2")
    try:
        # An idle replica gets a request after 32 to the others, however slow its curve was measured
        who = {embedded(server, "a" * (1 + number % 29)) for number in range(80)}
        assert {status for status, _ in who} == {200}
        assert len(who) == 2
        until(lambda: server.counted("rows_total", lane="online") >= 29)
        path = run_job(server, tmp_path, 3000)
        until(lambda: len(list(tmp_path.glob("go.*"))) == 2)  # both have a part of it
        (tmp_path / "go").touch()
        lost = server.embed("Sized", "die 0")
        assert lost.status == 503
        assert float(lost.headers["retry-after"]) >= 1
        until(lambda: embedded(server, "a", x_request_timeout_ms="20000")[0] == 200)
        until(lambda: server.ask("GET", path).json()["state"] in ("done", "failed"))
        shown = server.ask("GET", path).json()
        assert shown["state"] == "done", shown
        table = pq.read_table(tmp_path / "out").sort_by("id")
        assert table["id"].to_pylist() == list(range(3000))
        until(lambda: server.counted("replicas", state="ready") == 2)
        assert server.stop() == 0
    finally:
        server.end()
        cluster.clear()


def test_ray_scales_by_our_policy(cluster: Nodes, tmp_path: Path) -> None:
    cluster.add()
    cluster.add()
    (tmp_path / "m.py").write_text(SOURCE)
    (tmp_path / "serve.toml").write_text(f"""
engine = "ray"
address = "{cluster.address}"
[models.Sized]
model = "{tmp_path}/m.py:Sized"
slo_ms = 2000
max_replicas = 2
max_batch = 1
[models.Sized.scale]
every = "500ms"
cooldown = "3s"
""")
    server = Server(tmp_path / "home", "--config", str(tmp_path / "serve.toml"))

    def load(_number: int) -> Any:
        return server.embed("Sized", ["sleep 0.01"] * 8, x_request_timeout_ms="5000").status

    try:
        assert server.counted("replicas", state="ready") == 1
        with ThreadPoolExecutor(8) as pool:
            while server.counted("replicas", state="ready") < 2:
                assert set(pool.map(load, range(32))) <= {200, 503}
        until(lambda: server.counted("replicas", state="ready") == 1)
        assert server.embed("Sized", "a").status == 200
        assert sized_replicas()
        server.process.kill()
        server.process.wait()
        until(lambda: not sized_replicas())
    finally:
        server.end()
        cluster.clear()


def sized_replicas() -> list[Path]:
    """Processes of the deployment: none is left once the front is gone."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ServeReplica" in (words := each.read_bytes()) and b"Sized" in words:
                found.append(each)
        except OSError:
            continue
    return found


def test_a_candidate_is_promoted_and_a_broken_one_is_rolled_back_without_an_error(
    cluster: Nodes, tmp_path: Path
) -> None:
    cluster.add()
    cluster.add()
    versions = Versions(tmp_path / "versions")
    for factor, fails in ((2, 0), (3, 0), (4, 5)):
        versions.push(factor, fails=fails)
    ray = ["--engine", "ray", "--address", cluster.address, "--threads", "1"]
    with versions.serve(*ray) as server, Clients(server) as clients:
        versions.run("deploy", "times:2", "--canary", "40%", "--on", server.address)
        until(lambda: "2" in clients.versions())
        versions.run("rollouts", "promote", "times", "--on", server.address)
        until_stage(server, "promoted")
        until(lambda: all(asked(server).headers["x-twoshift-version"] == "2" for _ in range(20)))
        versions.run("deploy", "times:3", "--canary", "40%", "--on", server.address)
        assert until_stage(server, "rolled_back", "promoted")["stage"] == "rolled_back"
        assert asked(server).headers["x-twoshift-version"] == "2"
    assert clients.failed == {}, clients.wrong
