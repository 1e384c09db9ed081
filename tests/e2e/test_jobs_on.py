"""Jobs in the batch lane of a running server: `twoshift run --on`, `twoshift jobs`, restarts."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import PROGRAM, command, environment, python_path
from servers import Server, until
from user_models import square

for needs in ("httptools", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
MODEL, QUICK_MODEL = square("time.sleep(0.03)", has_example=True), square(has_example=True)
ROWS = 600


class Fleet:
    """A folder with a model and its input, and a server over it that can be started again."""

    model = MODEL  # a job takes long enough for something to happen meanwhile

    def __init__(self, path: Path, *more: str, **environment: str) -> None:
        self.path, self.more, self.environment = path, more, environment
        if not (path / "m.py").exists():  # another server may be over it already
            (path / "m.py").write_text(self.model)
            pq.write_table(pa.table({"id": np.arange(ROWS), "x": np.arange(float(ROWS))}), path / "in.parquet")
        self.server = self.started()

    def started(self) -> Server:
        words = [f"{self.path}/m.py:Square", "--slo-ms", "60000", "--max-batch", "8", "--grace", "5s", *self.more]
        self.server = Server(self.path / "home", *words, more=self.environment)
        return self.server

    def run(self, *words: str, code: int = 0) -> Any:
        done = command(*words, "--on", self.server.address, "--json", cwd=self.path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    def asked(self, *path: str) -> Any:
        """What the server itself says: who waits asks it often, and a program each time would take the machine."""
        reply = self.server.ask("GET", "/".join(("/v1", *path)))
        assert reply.status == 200, reply.body
        return reply.json()

    def job(self, *more: str, output: str = "out") -> Any:
        given = ["--model", "Square", "--columns", "x", "--keep", "id", "--shard-rows", "50", "-o", output]
        return self.run("run", "in.parquet", *given, *more)

    def live(self) -> int:
        tensor = {"name": "x", "datatype": "FP64", "shape": [1], "data": [3.0]}
        return self.server.ask("POST", "/v2/models/Square/infer", {"inputs": [tensor]}).status

    def check(self, output: str = "out") -> None:
        table = pq.read_table(self.path / output).sort_by("id")
        assert table["id"].to_pylist() == list(range(ROWS))
        assert table["squared"].to_pylist() == [float(k) ** 2 for k in range(ROWS)]
        assert (self.path / output / "_SUCCESS").exists()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    yield made
    made.server.end()


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """One that ends in the test."""
    made = Fleet(tmp_path)
    yield made
    made.server.end()


def test_nothing_is_written_over_the_servers_own_files_also_where_it_is_yours_alone(fleet: Fleet) -> None:
    for output in ("home", "home/out", "home/fleet.db"):
        told = fleet.run("run", "in.parquet", "--model", "Square", "--columns", "x", "-o", output, code=2)
        assert "a folder outside TWOSHIFT_HOME" in " ".join(told.split())
    assert fleet.run("jobs", "list")["data"] == []


def test_a_job_rides_beside_live_requests_and_says_how_far_it_is_and_what_it_took(fleet: Fleet) -> None:
    job = fleet.job("--detach")
    while fleet.server.ask("GET", f"/v1/jobs/{job['id']}").json()["state"] in ("queued", "running"):
        assert fleet.live() == 200
    fleet.check()
    shown = fleet.run("jobs", "show", job["id"])
    assert (shown["state"], shown["progress"]["shards_done"]) == ("done", 12)
    assert [each["id"] for each in fleet.run("jobs", "list")["data"]] == [job["id"]]
    told = _told(fleet, "jobs", "list", columns="200")
    assert "rows" in told
    assert "errors" in told
    assert f"{ROWS}/{ROWS}" in told
    assert fleet.run("jobs", "logs", job["id"])["data"][-1]["text"] == "done"
    report = json.loads((fleet.path / "out" / "_twoshift" / "report.json").read_text())
    assert report["harvested_s"] > 0
    assert report["dedicated_s"] == 0
    assert report["live"]["beside"]["requests"] > 0
    assert report["parity"]["worst_difference"] == 0


def test_the_command_waits_for_its_job_and_a_job_here_is_the_same(fleet: Fleet) -> None:
    given = ["--columns", "x", "--keep", "id", "--shard-rows", "50"]
    words = [PROGRAM, "run", "in.parquet", *given, "-o", "waited", "--model", "Square", "--on", fleet.server.address]
    waited = subprocess.run([*words, "--json"], cwd=fleet.path, env=environment(fleet.path), capture_output=True)
    assert json.loads(waited.stdout)["state"] == "done", waited.stderr
    fleet.check("waited")
    here = [PROGRAM, "run", "in.parquet", *given, "-o", "local", "--model", "m.py:Square"]
    subprocess.run(here, cwd=fleet.path, env=environment(fleet.path / "home"), check=True, capture_output=True)
    for part in sorted((fleet.path / "waited").glob("part-*")):
        assert pq.read_table(part).equals(pq.read_table(fleet.path / "local" / part.name))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_goes_down_in_mid_job_goes_on_with_it(own_fleet: Fleet, number: signal.Signals) -> None:
    fleet = own_fleet
    job = fleet.job("--detach")
    until(lambda: len(list((fleet.path / "out").glob("part-*"))) >= 2)
    fleet.server.process.send_signal(number)
    fleet.server.process.wait(120)
    fleet.server.end()
    fleet.started()
    until(lambda: fleet.server.ask("GET", f"/v1/jobs/{job['id']}").json()["state"] == "done")
    fleet.check()
    lines = [line["text"] for line in fleet.run("jobs", "logs", job["id"])["data"]]
    assert any("shards were already done" in line for line in lines)


def test_a_job_is_paused_resumed_and_cancelled_by_command(fleet: Fleet) -> None:
    job = fleet.job("--detach", output="first")["id"]
    fleet.run("jobs", "pause", job)
    until(lambda: fleet.asked("jobs", job)["state"] == "paused")
    fleet.run("jobs", "resume", job)
    until(lambda: fleet.asked("jobs", job)["state"] != "paused")
    second = fleet.job("--detach", output="second")["id"]
    fleet.run("jobs", "cancel", second)
    until(lambda: fleet.asked("jobs", second)["state"] == "cancelled")
    until(lambda: fleet.asked("jobs", job)["state"] == "done")
    fleet.check("first")


def test_a_job_of_a_server_goes_on_here_by_the_command_that_it_shows(fleet: Fleet, tmp_path: Path) -> None:
    job = fleet.job("--detach", output="moved")["id"]
    until(lambda: len(list((fleet.path / "moved").glob("part-*"))) >= 2)
    fleet.run("jobs", "pause", job)
    until(lambda: "To resume the job on this machine: " in _told(fleet, "jobs", "show", job))
    fleet.run("jobs", "cancel", job)
    words = shlex.split(
        _told(fleet, "jobs", "show", job).partition("To resume the job on this machine: ")[2].splitlines()[0]
    )
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [PROGRAM, *words[1:]], cwd=tmp_path / "elsewhere", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Resuming: " in done.stderr
    fleet.check("moved")


def _told(fleet: Fleet, *words: str, columns: str = "80") -> str:
    done = command(*words, "--on", fleet.server.address, cwd=fleet.path, env={"COLUMNS": columns})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_outside_its_hours_waits(fleet: Fleet) -> None:
    import time

    minute = 60 * time.localtime().tm_hour + time.localtime().tm_min
    later = [(minute + add) % 1440 for add in (120, 180)]
    hours = "-".join(f"{each // 60:02d}:{each % 60:02d}" for each in later)
    job = fleet.job("--detach", "--hours", hours, output="later")["id"]
    until(lambda: bool((fleet.asked("jobs", job)["progress"] or {}).get("held")))
    assert not list((fleet.path / "later").glob("part-*"))
    fleet.run("jobs", "cancel", job)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "other"), "Square"),
        (("--model", "Square", "--engine", "ray"), "--engine: 'ray' cannot be used with --on"),
        (("--model", "Square", "--fresh"), "--fresh"),
    ],
)
def test_what_a_server_cannot_do_is_told(fleet: Fleet, words: tuple[str, ...], said: str) -> None:
    told = fleet.run("run", "in.parquet", *words, "-o", "refused", code=2)
    assert said in told


def test_a_server_that_is_not_there_is_told() -> None:
    done = command("jobs", "list", "--on", "http://127.0.0.1:9")
    assert done.returncode == 75
    assert "does not answer" in done.stderr


def test_a_key_has_jobs_of_its_own_on_its_own_models_below_the_roots(tmp_path: Path) -> None:
    import hashlib

    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": np.arange(10.0)}), tmp_path / "data" / "in.parquet")
    (tmp_path / "secret").mkdir()
    pq.write_table(pa.table({"x": np.arange(10.0)}), tmp_path / "secret" / "in.parquet")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "secret")
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("alice", "bob")}
    (tmp_path / "serve.toml").write_text(f"""
job_roots = ["{tmp_path}/data"]
[models.A]
model = "{tmp_path}/m.py:Square"
slo_ms = 60000
[models.B]
model = "{tmp_path}/m.py:Square"
slo_ms = 60000
[keys.alice]
sha256 = "{digests["alice"]}"
models = ["A"]
[keys.bob]
sha256 = "{digests["bob"]}"
""")
    server = Server(tmp_path / "home", "--config", str(tmp_path / "serve.toml"))

    def ask(who: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return server.ask(method, path, body, {"authorization": f"Bearer {who}", **headers})

    try:
        job = {"inputs": [f"{tmp_path}/data/in.parquet"], "output": f"{tmp_path}/data/out", "columns": ["x"]}
        assert ask("alice", "POST", "/v1/jobs", {**job, "model": "B"}).status == 403
        made = ask("alice", "POST", "/v1/jobs", {**job, "model": "A"})
        assert made.status == 200
        path = f"/v1/jobs/{made.json()['id']}"
        assert ask("bob", "GET", path).status == ask("bob", "POST", f"{path}/cancel").status == 404
        assert ask("bob", "GET", "/v1/jobs").json()["data"] == []
        assert len(ask("alice", "GET", "/v1/jobs").json()["data"]) == 1
        for outside in (
            "secret/in.parquet",
            "data/link/in.parquet",
            "data/../secret/in.parquet",
        ):
            given = {**job, "model": "A", "inputs": [f"{tmp_path}/{outside}"], "output": f"{tmp_path}/data/other"}
            assert "below" in ask("bob", "POST", "/v1/jobs", given).message, outside
        given["inputs"] = [f"{tmp_path}/data/lin*/in.parquet"]
        assert "matches at least one file" in ask("bob", "POST", "/v1/jobs", given).message
        given = {**job, "model": "A", "output": f"{tmp_path}/data/link/x://out"}
        assert "below" in ask("bob", "POST", "/v1/jobs", given).message
        assert ask("bob", "POST", "/v1/jobs", {**job, "model": "A"}, origin="http://page").status == 403
        until(lambda: ask("alice", "GET", path).json()["state"] == "done")
    finally:
        server.end()


class QuickFleet(Fleet):
    """One whose jobs end soon."""

    model = QUICK_MODEL


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_first_job_imports_nothing_that_live_requests_would_have_to_wait_for(tmp_path: Path, replicas: int) -> None:
    words = ["--replicas", f"{replicas}"]
    fleet = QuickFleet(tmp_path, *words, PYTHONPROFILEIMPORTTIME="1", PYTHONPATH=python_path(lean=False))
    try:
        assert fleet.live() == 200
        before = fleet.server.said.count("\n")
        assert fleet.job()["state"] == "done"
        lines = [line for line in fleet.server.said.splitlines()[before:] if line.startswith("import time:")]
    finally:
        fleet.server.end()
    took_us = sum(int(line.removeprefix("import time:").split("|")[0]) for line in lines)
    assert took_us < 50_000, lines
