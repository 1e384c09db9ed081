"""Replica processes behind one front: crashes, hangs, ends, and jobs over all of them."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAM, environment
from servers import Server, until

for needs in ("httptools", "sqlalchemy", "pyarrow"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
PATIENT = {"x_request_timeout_ms": "30000"}
SOURCE = '''
import os
import time

import numpy as np

from twoshift.errors import TryLater


class Sized:
    """Texts to their sizes; a text may ask for trouble, and who has it writes who it is into a file."""

    outputs = ("embedding",)
    example = "a"
    max_row_tokens = 50

    def load(self):
        if os.path.exists(os.path.join(os.path.dirname(__file__), "broken")):
            raise ValueError("it does not load today")

    def prepare(self, rows):
        texts = np.empty(len(rows), object)
        texts[:] = [row["text"] if isinstance(row, dict) else row for row in rows]
        return {"text": texts}

    def predict(self, batch):
        for text in batch["text"]:
            word, _, rest = text.partition(" ")
            if word == "raise":
                raise ArithmeticError("this text is bad")
            if word == "full":
                raise TryLater("full, says the model", 6.5)
            if word in ("sleep", "die"):
                seconds, _, told = rest.partition(" ")
                if told:
                    with open(told + ".new", "w") as file:
                        file.write(str(os.getpid()))
                    os.rename(told + ".new", told)
                if word == "die":
                    os.abort()
                time.sleep(float(seconds))
            if word == "wait":
                gate = rest.partition(" ")[0]
                open(f"{gate}.{os.getpid()}", "w").close()
                while not os.path.exists(gate):
                    time.sleep(0.01)
        time.sleep(0.002)
        return {"embedding": np.array([[len(text), os.getpid()] for text in batch["text"]], float)}
'''


def children(pid: int) -> set[int]:
    """Its processes that live, by what they were started for."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(") ")[2].split()
            words = each.with_name("cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == pid and b"spawn_main" in words and fields[0] != "Z":
            found.add(int(each.parent.name))
    return found


def lives(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("replicas")
    (made / "m.py").write_text(SOURCE)
    return made


def started(folder: Path, *words: str) -> Server:
    return Server(folder / "home", f"{folder}/m.py:Sized", "--slo-ms", "500", "--replicas", "2", *words)


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Server]:
    """For tests that leave it as they found it."""
    server = started(folder)
    yield server
    server.end()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def embedded(server: Server, text: str, **headers: str) -> tuple[int, int]:
    """The status, and who has answered."""
    got = server.embed("Sized", text, **headers)
    return got.status, int(got.json()["data"][0]["embedding"][1]) if got.status == 200 else 0


def both_are_ready(server: Server) -> bool:
    return server.counted("replicas", state="ready") == 2


def test_ps_tells_a_replica_from_the_main_process(shared: Server) -> None:
    assert {Path(f"/proc/{pid}/comm").read_text() for pid in children(shared.process.pid)} == {"ts-rep-Sized\n"}


def test_a_second_signal_leaves_no_folder_of_sockets_behind(
    folder: Path, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    temporary = Path(tempfile.mkdtemp(dir="/tmp"))
    words = (f"{folder}/m.py:Sized", "--slo-ms", "500", "--replicas", "2", "--grace", "10m")
    server = Server(folder / "home", *words, more={"TMPDIR": str(temporary)})
    assert len([*temporary.glob("twoshift-live-*")]) == 2
    running = pool.submit(_lost, server, f"sleep 50 {tmp_path / 'told'}")
    until((tmp_path / "told").exists)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: "send a second signal" in server.said)
    assert server.stop() == 1
    assert running.result()
    assert [*temporary.glob("twoshift-live-*")] == []
    server.end()
    shutil.rmtree(temporary)


def _lost(server: Server, text: str) -> bool:
    try:
        return embedded(server, text, **PATIENT)[0] != 200
    except (OSError, http.client.HTTPException):
        return True


def test_two_replicas_answer_as_one_and_are_counted_together(shared: Server) -> None:
    whole = children(shared.process.pid)
    assert len(whole) == 2
    answered = [embedded(shared, "a" * size) for size in range(1, 21)]

    def is_asked_of_both() -> bool:
        """On a busy machine one of them may look slow for a while."""
        answered.append(embedded(shared, "a"))
        return {who for _, who in answered} == whole

    until(is_asked_of_both)
    got = shared.embed("Sized", ["a", "bb", "ccc"])
    assert [each["embedding"][0] for each in got.json()["data"]] == [1, 2, 3]
    until(lambda: shared.counted("rows_total", lane="online") == len(answered) + 3)
    assert "forward;dur=" in got.headers["server-timing"]
    derived = shared.ask("GET", "/v1/derived/Sized").json()
    assert derived["device"].startswith("cpu")
    assert derived["curves"]["limits"]["slo_s"] == derived["slo_s"]
    assert shared.ask("GET", "/v2/models/Sized").json()["outputs"][0]["name"] == "embedding"


def test_a_replica_that_is_killed_from_outside_costs_no_request(
    shared: Server, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    until(lambda: both_are_ready(shared))
    gate = tmp_path / "gate"
    begun = pool.submit(embedded, shared, f"wait {gate}", **PATIENT)
    until(lambda: [*tmp_path.glob("gate.*")])
    (victim,) = [int(each.suffix[1:]) for each in tmp_path.glob("gate.*")]
    load = [pool.submit(embedded, shared, f"word {k}", **PATIENT) for k in range(100)]
    os.kill(victim, signal.SIGKILL)
    until(lambda: len([*tmp_path.glob("gate.*")]) == 2)  # the other one runs it
    gate.touch()
    status, who = begun.result(120)
    assert status == 200
    assert who != victim
    assert {each.result(120)[0] for each in load} == {200}
    until(lambda: both_are_ready(shared))
    assert victim not in children(shared.process.pid)
    until(lambda: "killed by SIGKILL" in shared.said)
    until(lambda: shared.counted("rows_total", lane="online") >= 100)


def test_a_request_that_ends_its_replica_is_not_given_to_another(shared: Server, tmp_path: Path) -> None:
    until(lambda: both_are_ready(shared))
    before, told = children(shared.process.pid), tmp_path / "told"
    got = shared.embed("Sized", f"die 0 {told}", **PATIENT)
    assert got.status == 503
    assert "lost while it ran" in got.message
    assert float(got.headers["retry-after"]) >= 1
    (survivor,) = before - {int(told.read_text())}
    until(lambda: both_are_ready(shared))
    assert survivor in children(shared.process.pid)


def test_a_replica_that_hangs_is_replaced(shared: Server, tmp_path: Path) -> None:
    until(lambda: both_are_ready(shared))
    told = tmp_path / "told"
    assert shared.embed("Sized", f"sleep 60 {told}").status == 504
    victim = int(told.read_text())
    assert shared.embed("Sized", "a").status == 200
    until(lambda: not lives(victim))
    until(lambda: both_are_ready(shared))
    until(lambda: re.search("a call has been running on the device|has sent no heartbeat", shared.said) is not None)
    assert shared.ask("GET", "/readyz").status == 200


def test_what_was_admitted_is_answered_after_the_notice_to_stop(
    folder: Path, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    server = started(folder)
    try:
        replicas = children(server.process.pid)
        running = pool.submit(server.embed, "Sized", f"sleep 1 {tmp_path / 'told'}", **PATIENT)
        until((tmp_path / "told").exists)
        assert server.stop() == 0
        assert running.result().status == 200
        assert not any(lives(pid) for pid in replicas)
        assert "has ended" not in server.said
    finally:
        server.end()


def test_replicas_do_not_outlive_a_front_that_is_killed(folder: Path, tmp_path: Path) -> None:
    server = started(folder)
    try:
        replicas = children(server.process.pid)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(server.raw, b"")  # somebody is connected
            server.process.kill()
        assert len(replicas) == 2
        until(lambda: not any(lives(pid) for pid in replicas))
    finally:
        server.end()


def test_a_model_that_does_not_load_is_told_as_one_process_tells_it(folder: Path) -> None:
    (folder / "broken").touch()
    try:
        words = [PROGRAM, "serve", f"{folder}/m.py:Sized", "--replicas", "2", "--port", "0"]
        env = environment(folder / "home")
        ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    finally:
        (folder / "broken").unlink()
    assert ended.returncode in (1, 2)
    assert "it does not load today" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_job_runs_on_all_replicas_and_a_crash_loses_no_row(folder: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 4000
    pq.write_table(pa.table({"id": range(rows), "text": [f"w{k}" for k in range(rows)]}), tmp_path / "in.parquet")
    database = f"sqlite:///{tmp_path}/fleet.db"  # the other server has its own
    server = started(folder, "--max-batch", "4", "--database", database)
    try:
        words = ["run", str(tmp_path / "in.parquet"), "--model", "Sized", "--text", "text", "--keep", "id"]
        more = ["--shard-rows", "50", "-o", str(tmp_path / "out"), "--detach", "--on", server.address, "--json"]
        sent = subprocess.run([PROGRAM, *words, *more], capture_output=True, text=True, timeout=120, check=True)
        path = f"/v1/jobs/{json.loads(sent.stdout)['id']}"
        until(lambda: len(list((tmp_path / "out").glob("part-*"))) >= 10)
        os.kill(min(children(server.process.pid)), signal.SIGKILL)
        assert server.embed("Sized", "a").status == 200
        until(lambda: server.ask("GET", path).json()["state"] in ("done", "failed"))
        shown = server.ask("GET", path).json()
        assert shown["state"] == "done", shown
        assert shown["progress"]["harvested_s"] > 0
        table = pq.read_table(tmp_path / "out").sort_by("id")
        assert table["id"].to_pylist() == list(range(rows))
        assert [each[0] for each in table["embedding"].to_pylist()] == [len(f"w{k}") for k in range(rows)]
        assert len({each[1] for each in table["embedding"].to_pylist()}) >= 2
        report: Any = json.loads((tmp_path / "out" / "_twoshift" / "report.json").read_text())
        assert report["parity"]["worst_difference"] is not None
        assert server.stop() == 0
    finally:
        server.end()
