"""Objectives that cannot be kept, and profiles from a busy moment: what a server says and does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from programs import PROGRAM
from servers import Server, until

from twoshift.policy.profile import Profile
from twoshift.store.profiles import FileProfiles

SLOW = """
import time
import numpy as np


class Slow:
    outputs = ("embedding",)
    example = "a red fox"

    def load(self):
        pass

    def prepare(self, rows):
        return {"size": np.array([len(row) for row in rows])}

    def predict(self, batch):
        time.sleep(0.04)
        return {"embedding": np.stack([batch["size"], batch["size"]], 1) / 7}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("objectives")
    (made / "slow.py").write_text(SLOW)
    (made / "home" / "profiles").mkdir(parents=True)  # of its own: the tests change what is in it
    return made


@pytest.fixture(scope="module")
def hopeless(folder: Path) -> Iterator[Server]:
    """A row takes 40 ms, and the objective is 20."""
    made = Server(folder / "home", f"{folder}/slow.py:Slow", "--slo-ms", "20")
    yield made
    made.end()


def test_a_server_says_at_its_start_what_it_cannot_keep_and_what_it_could(hopeless: Server) -> None:
    assert "one row takes 4" in hopeless.said
    assert "cannot meet the SLO of 20 ms" in hopeless.said


def test_an_answer_that_is_late_is_better_than_none(hopeless: Server) -> None:
    assert [hopeless.embed("Slow", "a red fox").status for _ in range(5)] == [200] * 5


def test_a_timeout_of_the_callers_own_is_kept_all_the_same(hopeless: Server) -> None:
    assert hopeless.embed("Slow", "a red fox", x_request_timeout_ms="10").status in (413, 504)


def test_readiness_and_what_is_derived_say_what_cannot_be_kept(hopeless: Server) -> None:
    ready = hopeless.ask("GET", "/readyz")
    assert ready.status == 200
    assert "cannot meet the SLO" in ready.json()["warnings"][0]
    derived = hopeless.ask("GET", "/v1/derived/Slow").json()
    assert (derived["keeps_slo"], derived["least_slo_s"] > 0.08) == (False, True)


def test_a_job_on_such_a_server_blames_the_objective_and_not_the_rows(hopeless: Server, folder: Path) -> None:
    (folder / "docs.jsonl").write_text("".join(json.dumps({"body": f"text {k}"}) + "\n" for k in range(20)))
    words = ["--model", "Slow", "--text", "body", "-o", f"{folder}/out", "--on", hopeless.address]
    command = [PROGRAM, "run", f"{folder}/docs.jsonl", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    told = " ".join(ran.stdout.split())
    assert ran.returncode != 0
    assert "failed: with an SLO of 20 ms, a call with batch rows may take 9 ms" in told
    assert "a larger --slo-ms" in told
    assert "inputs" not in told


def doctored(home: Path, factor: float) -> Profile:
    """The stored profile, of a device so many times as slow."""
    store = FileProfiles(home / "profiles")
    (name,) = store.names()
    slow = replace(store.get(name), cost=store.get(name).cost.scaled(factor))
    store.put(slow)
    return slow


def test_a_profile_that_calls_contradict_is_measured_again_and_stored(hopeless: Server, folder: Path) -> None:
    home = folder / "home"
    slow = doctored(home, 6)
    server = Server(home, f"{folder}/slow.py:Slow", "--slo-ms", "200")
    try:
        assert "measuring again" in server.said
        assert "Warning" not in server.said
        assert server.embed("Slow", ["a red fox"] * 4).status == 200
    finally:
        server.end()
    until(lambda: server.process.poll() is not None, 30)
    healed = FileProfiles(home / "profiles").get(slow.name)
    one = healed.row.call(1)
    assert healed.cost.seconds(one) < slow.cost.seconds(one) / 3


def test_a_profile_that_calls_agree_with_is_used_as_it_is(folder: Path) -> None:
    server = Server(folder / "home", f"{folder}/slow.py:Slow", "--slo-ms", "200")
    try:
        assert "easuring" not in server.said
    finally:
        server.end()
