"""A model that has no replica while nobody needs one: a request, a job and a schedule wake it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import command
from servers import FRONTS, Server, until

for needs in ("httptools", "sqlalchemy", "pyarrow"):
    pytest.importorskip(needs)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(FRONTS), reason="front-end processes cannot wake a model")]
SOURCE = """
import numpy as np


class Sizes:
    outputs = ("embedding",)
    example = "a"

    def load(self):
        pass

    def prepare(self, rows):
        return {"size": np.array([len(row) for row in rows])}

    def predict(self, batch):
        return {"embedding": batch["size"][:, None] / 7}
"""
CONFIG = """
[models.sizes]
model = "MODEL"
min_replicas = 0
max_replicas = 2

[models.sizes.scale]
every = "200ms"
cooldown = "500ms"
batch_replicas = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sleeps")
    (made / "m.py").write_text(SOURCE)
    (made / "twoshift.toml").write_text(CONFIG.replace("MODEL", f"{made}/m.py:Sizes"))
    (made / "in.jsonl").write_text("".join(json.dumps({"id": k, "text": "a" * (k % 9)}) + "\n" for k in range(500)))
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    made = Server(folder / "home", "--config", str(folder / "twoshift.toml"))
    yield made
    made.end()


def sleeps(server: Server) -> None:
    until(lambda: server.counted("replicas") == 0)
    assert "sizes is asleep" in server.ask("GET", "/readyz").body.decode()


def ran(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return command(*words, env={"TWOSHIFT_HOME": str(home)})


def test_requests_wait_for_the_wake_up_and_one_without_the_time_is_told_when_to_come_back(server: Server) -> None:
    sleeps(server)
    assert server.ask("GET", "/v2/models/sizes/ready").status == 200
    refused = server.embed("sizes", "abc", x_request_timeout_ms="1")
    assert refused.status == 503
    assert "asleep" in refused.message
    assert int(refused.headers["retry-after"]) >= 1
    with ThreadPoolExecutor(12) as clients:
        answered = [*clients.map(lambda _: server.embed("sizes", "abc"), range(12))]
    assert {each.status for each in answered} == {200}, [each.body for each in answered]
    assert server.counted("refused_rows_total") == 0  # no larger fleet would have helped
    assert server.counted("scale_decisions_total", direction="up") == 1


def test_a_schedule_brings_the_replicas_that_its_job_asks_for_and_they_go_when_it_ends(
    server: Server, folder: Path
) -> None:
    sleeps(server)
    (folder / "job.toml").write_text(
        f'inputs = ["{folder}/in.jsonl"]\noutput = "{folder}/out-{{run}}"\nmodel = "sizes"\ntext = "text"\n'
        'keep = ["id"]\nshard_rows = 50\n'
    )
    on = ("--on", server.address)
    words = ("schedule", "add", "nightly", "--cron", "0 2 * * *", str(folder / "job.toml"), *on)
    greedy = ran(folder / "home", *words, "--workers", "3")
    assert greedy.returncode == 2
    assert "workers: 3 cannot be used; expected at most 2, the number of replicas that sizes" in greedy.stderr
    added = ran(folder / "home", *words, "--workers", "2", "--json")
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout)["spec"]["job"]["workers"] == 2
    run = json.loads(ran(folder / "home", "schedule", "run", "nightly", *on, "--json").stdout)
    until(lambda: server.ask("GET", f"/v1/jobs/{run['job']}").json()["state"] == "done")
    assert "sizes: scaling replicas to 2: add 1: " in server.said
    sleeps(server)
    job = server.ask("GET", f"/v1/jobs/{run['job']}").json()
    assert (job["progress"]["rows_committed"], job["progress"]["errors"]) == (500, 0)
    replayed = ran(folder / "home", "sim", "day", "--replay", str(folder / "home" / "scale" / "sizes.jsonl"))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
