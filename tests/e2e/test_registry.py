"""Push, alias, run, serve by alias, rollback: the real program over one registry."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cloud_servers import azure_server, azure_variables, gcs_server, make_container
from programs import PROGRAM, command, environment
from s3_server import make_bucket
from servers import Server, until

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("httptools")

TIMES = """
import numpy as np


class Times:
    outputs = ("product",)
    example = {"x": 1.0}

    def load(self):
        pass

    def predict(self, batch):
        return {"product": np.asarray(batch["x"], np.float64) * FACTOR}
"""


class Machine:
    """A home of its own, and a registry that it may share."""

    def __init__(self, path: Path, registry: Path) -> None:
        self.path, self.home = path, path / "home"
        path.mkdir()
        (self.home / "profiles").mkdir(parents=True)  # of its own: what is measured is looked at
        self.more = {"TWOSHIFT_REGISTRY": str(registry)}
        self.environment = environment(self.home, **self.more)

    def run(self, *words: str, code: int = 0, given: str | None = None) -> subprocess.CompletedProcess[str]:
        found = command(*words, env=self.environment, cwd=self.path, given=given)
        assert found.returncode == code, found.stderr
        return found

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def push(self, factor: int) -> int:
        (self.path / "times.py").write_text(TIMES.replace("FACTOR", str(factor)))
        return self.json("models", "push", "times", "times.py:Times", "--note", f"by {factor}")["version"]

    def serve(self, *words: str) -> Server:
        return Server(self.home, *words, more=self.more)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "one", tmp_path / "registry")


def product(server: Server) -> float:
    tensor = {"name": "x", "shape": [1], "datatype": "FP64", "data": [10.0]}
    got = server.ask("POST", "/v2/models/times/infer", {"inputs": [tensor]})
    assert got.status == 200, got.body
    return got.json()["outputs"][0]["data"][0]


def test_a_version_is_pushed_aliased_scored_and_run(machine: Machine) -> None:
    assert [machine.push(2), machine.push(3)] == [1, 2]
    machine.run("models", "alias", "times@prod", "1")
    scored = machine.run("score", "times@prod", given='{"x": 10}\n')
    assert json.loads(scored.stdout)["product"] == 20
    assert json.loads(machine.run("score", "times", given='{"x": 10}\n').stdout)["product"] == 30

    (machine.path / "in.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(10)))
    machine.run("run", "in.jsonl", "--model", "times@prod", "-o", "out")
    plan = json.loads((machine.path / "out/_twoshift/plan.json").read_text())
    assert plan["model"]["name"] == plan["settings"]["model"] == "times:1"

    uses = machine.json("models", "show", "times:1")["uses"]
    assert [use["kind"] for use in uses] == ["job"]


def test_a_version_is_served_by_alias_and_not_removed_meanwhile(machine: Machine) -> None:
    machine.push(2)
    machine.push(3)
    machine.run("models", "alias", "times@prod", "1")
    server = machine.serve("times@prod")
    try:
        assert product(server) == 20
        shown = machine.json("models", "show", "times:1")
        assert [use["kind"] for use in shown["uses"]] == ["server"]
        assert shown["aliases"] == ["prod"]
        machine.run("models", "alias", "times@prod", "2")
        refused = machine.run("models", "remove", "times:1", code=2)
        assert "a version that no server uses" in refused.stderr
        assert server.stop() == 0
    finally:
        server.end()
    assert machine.json("models", "show", "times:1")["uses"] == []


def test_a_server_that_loads_again_after_a_rollback_serves_the_version_before(machine: Machine) -> None:
    for number, factor in ((1, 2), (2, 3)):
        machine.push(factor)
        machine.run("models", "alias", "times@prod", str(number))
    server = machine.serve("times@prod")
    try:
        assert product(server) == 30
        assert machine.json("models", "rollback", "times@prod") == {"alias": "times@prod", "version": 1, "before": 2}
        assert server.ask("POST", "/v2/repository/models/times/load").status == 200
        until(lambda: product(server) == 20)
    finally:
        server.end()
    history = machine.json("models", "history", "times@prod")["moves"]
    assert [(move["version"], move["is_rollback"]) for move in history] == [(1, False), (2, False), (1, True)]


def test_a_job_stays_with_the_version_of_its_plan_when_its_alias_moves(machine: Machine) -> None:
    machine.push(2)
    machine.push(3)
    machine.run("models", "alias", "times@prod", "1")
    (machine.path / "in.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(40)))
    words = ("run", "in.jsonl", "--model", "times@prod", "-o", "out", "--shard-rows", "10")
    machine.run(*words)
    (machine.path / "out/_SUCCESS").unlink()
    (machine.path / "out/part-000001.parquet").unlink()
    machine.run("models", "alias", "times@prod", "2")
    machine.run(*words)
    assert pq.read_table(machine.path / "out").column("product").to_pylist() == [2.0 * x for x in range(40)]
    other = machine.run("run", "in.jsonl", "--model", "times:2", "-o", "out", "--shard-rows", "10", code=2)
    assert "the job began with times:1, and the model is now times:2" in " ".join(other.stderr.split())


def test_a_job_against_another_version_has_the_difference_in_its_report_and_in_the_registry(machine: Machine) -> None:
    machine.push(2)
    machine.push(3)
    (machine.path / "in.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(1, 41)))
    words = ("run", "in.jsonl", "--model", "times:2", "--against", "times:1", "-o", "out", "--shard-rows", "7")
    told = machine.json(*words)["against"]
    assert (told["candidate"], told["stable"], told["kind"], told["rows"]) == ("times:2", "times:1", "values", 40)
    assert told["mean"] == pytest.approx(1 / 3)
    assert told["share_above"] == 1.0
    assert pq.read_table(machine.path / "out").column("product").to_pylist() == [3.0 * x for x in range(1, 41)]
    report = json.loads((machine.path / "out/_twoshift/report.json").read_text())
    assert report["against"] == told
    assert (
        "Difference between the answers of times:2 and times:1"
        in (machine.path / "out/_twoshift/report.html").read_text()
    )

    assert machine.json(*words)["against"] == told  # nothing is left to do
    beside = machine.path / "out/_twoshift"
    for left in ("against.json", "against/_SUCCESS", "against/part-000002.parquet"):  # as if it was killed there
        (beside / left).unlink()
    assert machine.json(*words)["against"] == told
    [made] = machine.json("models", "show", "times:2")["evaluations"]
    assert (made["against"], made["figures"]["rows"]) == ("times:1", 40)
    assert "compared with times:1 over 40 rows" in machine.run("models", "show", "times:2").stdout
    unknown = machine.run("run", "in.jsonl", "--model", "times:2", "--against", "times:9", "-o", "more", code=2)
    assert "a version of times: 1, 2" in unknown.stderr
    assert not (machine.path / "more").exists()
    pytest.importorskip("duckdb")
    few = ("run", "in.jsonl", "--query", "SELECT x FROM input WHERE x > 30", *words[2:6], "-o", "few")
    assert machine.json(*few)["against"]["rows"] == 10  # both read the result of one query
    assert [each.parent.name for each in (machine.path / "few").glob("_twoshift/**/staging")] == ["_twoshift"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["gs", "az"])
def test_a_job_reads_and_writes_in_other_clouds_by_a_registry_there(tmp_path: Path, cloud: str) -> None:
    pytest.importorskip("obstore")
    (tmp_path / "azurite").mkdir()
    with gcs_server() if cloud == "gs" else azure_server(tmp_path / "azurite") as endpoint:
        (make_bucket if cloud == "gs" else make_container)(endpoint, "bucket")
        variables = {"STORAGE_EMULATOR_HOST": endpoint} if cloud == "gs" else azure_variables(endpoint)
        machine = Machine(tmp_path / "one", tmp_path)
        machine.environment |= {**variables, "TWOSHIFT_REGISTRY": f"{cloud}://bucket/models"}
        assert machine.push(2) == 1
        machine.run("models", "alias", "times@prod", "1")
        (machine.path / "in.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(10)))
        machine.run("run", "in.jsonl", "--model", "times@prod", "-o", f"{cloud}://bucket/first", "--shard-rows", "4")
        machine.run("run", f"{cloud}://bucket/first/", "--model", "times@prod", "--columns", "x", "-o", "out", code=2)
        machine.run("verify", f"{cloud}://bucket/first")
        words = ("--model", "minus.py:Minus", "--columns", "product", "-o", f"{cloud}://bucket/second")
        (machine.path / "minus.py").write_text(MINUS)
        assert machine.json("run", f"{cloud}://bucket/first/", *words)["rows"] == 10
        assert machine.json("models", "verify")["damaged"] == {}


MINUS = """
class Minus:
    def load(self):
        pass

    def predict(self, batch):
        return {"minus": -batch["product"]}
"""


def test_a_job_on_a_server_names_a_version_or_an_alias(machine: Machine) -> None:
    machine.push(2)
    machine.push(3)
    machine.run("models", "alias", "times@prod", "1")
    (machine.path / "in.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(10)))
    server = machine.serve("times@prod")

    def submitted(model: str, output: str) -> Any:
        data = {"inputs": [str(machine.path / "in.jsonl")], "output": str(machine.path / output), "model": model}
        return server.ask("POST", "/v1/jobs", data)

    try:
        for number, word in enumerate(("times", "times:1", "times@prod")):
            job = submitted(word, f"out-{number}")
            assert job.status == 200, job.body
            until(lambda job=job: server.ask("GET", f"/v1/jobs/{job.json()['id']}").json()["state"] == "done")
            found = pq.read_table(machine.path / f"out-{number}").column("product").to_pylist()
            assert found == [2.0 * x for x in range(10)]
            plan = json.loads((machine.path / f"out-{number}/_twoshift/plan.json").read_text())
            assert plan["model"]["name"] == "times:1"
        refused = submitted("times:2", "out")
        assert refused.status == 404, refused.body
        assert "expected times:1, the version that this server serves as times" in refused.json()["error"]["message"]
        assert submitted("times@nobody", "out").status == 404
        machine.run("models", "alias", "times@prod", "2")
        assert submitted("times@prod", "out").status == 404
        job = {"inputs": [str(machine.path / "in.jsonl")], "output": f"{machine.path}/s-{{date}}", "model": "times:1"}
        assert server.ask("POST", "/v1/schedules", {"name": "s", "cron": "0 3 * * *", "job": job}).status == 200
    finally:
        server.end()


def test_a_server_starts_from_its_cache_where_the_registry_is_gone_and_says_so(
    machine: Machine, tmp_path: Path
) -> None:
    machine.push(2)
    machine.run("models", "alias", "times@prod", "1")
    machine.run("models", "pull", "times@prod")
    shutil.move(tmp_path / "registry", tmp_path / "elsewhere")
    server = machine.serve("times@prod")
    try:
        assert product(server) == 20
        assert "Using times:1 from the verified cache" in server.said
    finally:
        server.end()
    other = Machine(tmp_path / "two", tmp_path / "registry")
    assert "registry" in other.run("score", "times@prod", given='{"x": 1}\n', code=2).stderr


def test_what_one_machine_has_measured_another_like_it_does_not_measure_again(machine: Machine, tmp_path: Path) -> None:
    machine.push(2)
    other = Machine(tmp_path / "two", tmp_path / "registry")
    said = list[str]()
    for each in (machine, other):
        server = each.serve("times:1")
        said.append(server.said)
        server.end()
    assert "Measuring times:1" in said[0]
    # A busy machine may measure again, but only what it has been told
    assert "Measuring" not in said[1] or "The stored profile predicts" in said[1]
    assert len(machine.json("models", "show", "times:1")["profiles"]) == 1


def test_a_replica_and_a_configuration_file_name_a_version(machine: Machine, tmp_path: Path) -> None:
    machine.push(2)
    machine.push(3)
    config = machine.path / "serve.toml"
    lines = [f'registry = "{tmp_path / "registry"}"', "[models.times]", 'model = "times:1"', "replicas = 2"]
    config.write_text("\n".join(lines))
    machine.more.clear()
    server = machine.serve("--config", str(config))
    try:
        assert product(server) == 20
    finally:
        server.end()


def test_a_push_that_is_killed_leaves_nothing_to_see(machine: Machine, tmp_path: Path) -> None:
    machine.push(2)
    large = machine.path / "large.bin"
    with large.open("wb") as file:
        for _ in range(40):
            file.write(os.urandom(1 << 20))
    words = [PROGRAM, "models", "push", "times", "times.py:Times", "--with", str(large), "--no-check"]
    process = subprocess.Popen(words, env=machine.environment, cwd=machine.path)
    until(lambda: any((tmp_path / "registry/pushes").glob("*.json")) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen = [each["version"] for each in machine.json("models", "list", "times")["versions"]]
    assert seen in ([1], [1, 2])  # the kill may come too late
    assert machine.json("models", "verify")["damaged"] == {}
    assert machine.push(5) == len(seen) + 1


def test_a_broken_model_is_refused_at_the_push_unless_nobody_wants_to_know(machine: Machine) -> None:
    (machine.path / "model.onnx").write_bytes(b"not a graph")
    refused = machine.run("models", "push", "m", "model.onnx", code=1)
    assert "ONNX" in refused.stderr
    (machine.path / "bad.py").write_text("import not_there_at_all\n\nclass Bad:\n    pass\n")
    refused = machine.run("models", "push", "m", "bad.py:Bad", code=2)
    assert "not_there_at_all" in refused.stderr
    assert "--no-check" in refused.stderr
    assert machine.json("models", "list")["versions"] == []
    assert machine.json("models", "push", "m", "bad.py:Bad", "--no-check")["version"] == 1
