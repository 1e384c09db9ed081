"""Jobs of a server whose PostgreSQL is restarted, falls silent, or becomes another server's."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from real_postgres import RealPostgres, Relay
from servers import Server, until
from test_jobs_on import Fleet

for needs in ("psycopg", "pgserver"):
    pytest.importorskip(needs)

pytestmark = pytest.mark.slow
LONG_AGO = "UPDATE claims SET seen_unix_s = seen_unix_s - 60"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], Fleet]]:
    made: list[Fleet] = []

    def start(url: str) -> Fleet:
        made.append(Fleet(tmp_path, "--database", url))
        return made[-1]

    yield start
    for each in made:
        each.server.end()


@pytest.fixture
def relayed(postgres: RealPostgres) -> Iterator[Callable[[str], Relay]]:
    made: list[Relay] = []

    def relay(url: str) -> Relay:
        made.append(postgres.relay(url))
        return made[-1]

    yield relay
    for each in made:
        each.end()


def _state(server: Server, job_id: str) -> str:
    return server.ask("GET", f"/v1/jobs/{job_id}").json()["state"]


def _begun(fleet: Fleet) -> str:
    job = fleet.job("--detach")["id"]
    until(lambda: len(list((fleet.path / "out").glob("part-*"))) >= 2)
    return job


def _runs(fleet: Fleet) -> list[Any]:
    return [json.loads(each.read_text()) for each in (fleet.path / "out" / "_twoshift" / "runs").iterdir()]


def test_a_database_that_is_restarted_in_mid_job_is_not_noticed(
    postgres: RealPostgres, started: Callable[[str], Fleet]
) -> None:
    fleet = started(postgres.url())
    job = _begun(fleet)
    for _ in range(2):
        postgres.restart()
        assert fleet.live() == 200
        assert _state(fleet.server, job) in ("running", "done")
    until(lambda: _state(fleet.server, job) == "done")
    fleet.check()
    assert len(_runs(fleet)) == 1  # it was never begun anew
    assert fleet.job(output="second")["state"] == "done"
    assert fleet.server.stop() == 0


def test_a_silent_database_holds_up_neither_live_requests_nor_jobs_nor_the_end(
    postgres: RealPostgres, started: Callable[[str], Fleet], relayed: Callable[[str], Relay]
) -> None:
    relay = relayed(postgres.url())
    fleet = started(relay.url)
    job = _begun(fleet)
    relay.fall_silent()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(fleet.server.ask, "GET", f"/v1/jobs/{job}")
        assert [fleet.live() for _ in range(8)] == [200] * 8
        assert not asked.done()  # it waits for the database, and they have not waited for it
        told = asked.result()
    assert told.status == 503
    assert "answer" in told.message
    until((fleet.path / "out" / "_SUCCESS").exists)  # it needs no database for that
    fleet.server.process.send_signal(signal.SIGTERM)
    fleet.server.process.wait(120)  # the grace is 5 s, and the database is silent
    fleet.check()


def test_a_server_that_has_lost_its_jobs_to_another_stops_them_and_says_so(
    postgres: RealPostgres, started: Callable[[str], Fleet], relayed: Callable[[str], Relay]
) -> None:
    url = postgres.url()
    relay = relayed(url)
    fleet = started(relay.url)
    job = _begun(fleet)
    relay.fall_silent()
    postgres.execute(LONG_AGO, url)
    second = started(url)
    until(lambda: _state(second.server, job) in ("queued", "running", "done"))
    relay.speak()
    until(lambda: fleet.server.ask("GET", "/v1/jobs").status == 503)
    assert "runs the jobs of" in fleet.server.ask("GET", f"/v1/jobs/{job}").message
    assert fleet.live() == 200
    until(lambda: _state(second.server, job) == "done")
    fleet.check()
    assert sum(run["rows"] for run in _runs(fleet)) <= 600  # nothing was committed twice
    assert "stop on this server" in fleet.server.said


def test_a_second_server_of_a_database_goes_on_when_the_first_ends(
    postgres: RealPostgres, started: Callable[[str], Fleet]
) -> None:
    url = postgres.url()
    fleet = started(url)
    job = _begun(fleet)
    second = started(url)
    assert "Jobs wait" in second.server.said
    assert second.server.ask("GET", "/v1/jobs").status == 503
    fleet.server.process.kill()
    fleet.server.process.wait()
    postgres.execute(LONG_AGO, url)  # as after the time for which a claim lasts
    until(lambda: second.server.ask("GET", "/v1/jobs").status == 200)
    until(lambda: _state(second.server, job) == "done")
    fleet.check()
