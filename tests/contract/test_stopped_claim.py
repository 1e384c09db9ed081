"""A server that is stopped, and not ended, loses its claim to another one, and writes nothing when it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from twoshift.errors import Elsewhere
from twoshift.ports import JobRecord
from twoshift.store import claim as claims
from twoshift.store.claim import SqlClaim
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.types import JobState

WAIT_S = 60.0  # against hangs
OWNER = """
import sys, time
from twoshift.errors import Elsewhere
from twoshift.store.claim import SqlClaim
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs

database = Database(sys.argv[1])
claim = SqlClaim(database)
print("taken" if claim.take() else "not taken", flush=True)
sys.stdin.readline()
try:
    SqlJobs(database, claim=claim).note("job-1", "by one that has lost it")
    print("written", flush=True)
except Elsewhere:
    print("refused", flush=True)
print("renewed" if claim.renew() else "lost", flush=True)
sys.stdin.readline()
"""


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path}/jobs.db"
    database = Database(made)
    SqlJobs(database).add(JobRecord("job-1", {"output": "out"}, JobState.QUEUED, 1.0, 1.0))
    database.close()
    return made


def test_a_stopped_server_loses_its_claim_and_cannot_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_LASTS_S", 1.0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(
        [sys.executable, "-c", OWNER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert first.stdin
    assert first.stdout
    try:
        assert first.stdout.readline() == "taken\n"
        os.kill(first.pid, signal.SIGSTOP)
        database = Database(url)
        second = SqlClaim(database)
        until(second.take)
        SqlJobs(database, claim=second).note("job-1", "by the second")
        third = SqlClaim(database)
        assert not third.take()  # as long as the second one says a word
        os.kill(first.pid, signal.SIGCONT)
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == "refused\n"
        assert first.stdout.readline() == "lost\n"
        assert second.renew()  # with the lock of the first, by now
        assert [text for _, text in SqlJobs(database).notes("job-1")] == ["by the second"]
    finally:
        first.kill()
        first.communicate()
    assert second.renew()
    assert not third.take()
    second.release()
    assert third.take()
    with pytest.raises(Elsewhere):
        SqlJobs(database, claim=second).note("job-1", "by one that has let it go")
    third.release()
    database.close()
