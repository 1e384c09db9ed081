"""Streams on a server: what is taken, who may reach what, and where they run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from streaming import Streaming

pytest.importorskip("sqlalchemy")

from twoshift.batch.allowance import Allowance
from twoshift.batch.job_seats import EngineReplica, LiveFleet
from twoshift.blobs.roots import Roots
from twoshift.engine import Engine
from twoshift.errors import Elsewhere, InvalidInput, OverLimit, TryLater, TwoshiftError
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.server_services import confined_blobs
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.streams.stream_host import StreamHost
from twoshift.types import JobKindName, JobState
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.model_loading import load_model
from waiting import until


@dataclass
class Desk:
    """A host over an engine, and what the server around it says."""

    streaming: Streaming
    engine: Engine
    allowed: Allowance = field(default_factory=lambda: Allowance(blobs_for))
    away: str = ""
    elsewhere: TwoshiftError | None = None
    hosts: list[StreamHost] = field(default_factory=list[StreamHost])

    def __post_init__(self) -> None:
        self.replica = EngineReplica(self.engine)

    def host(self) -> StreamHost:
        store = SqlJobs(Database(f"sqlite:///{self.streaming.path}/state.db"), kinds=(JobKindName.STREAM,))
        fleet = LiveFleet(
            lambda: () if self.away else (self.replica,), list, why_away=lambda: self.away, model="Square"
        )  # fmt: skip
        host = StreamHost(
            store, lambda _: fleet, lambda _: self.allowed, self._check_ours, lambda _, device_s: device_s
        )
        self.hosts.append(host)
        host.start()
        return host

    def data(self, **more: Any) -> dict[str, Any]:
        given = {"source": str(self.streaming.inbox), "output": str(self.streaming.out), "model": "Square"}
        return {**given, "columns": ["x"], "keep": ["id"], "settle": 0.0, "fresh": 1.0, **more}

    def _check_ours(self) -> None:
        if self.elsewhere is not None:
            raise self.elsewhere


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    streaming = Streaming(tmp_path)
    model = load_model(f"{tmp_path}/m.py:Square")
    with Engine(model, CallCost.line(1e-4, 1e-5), LaneLimits(max_rows=64, slo_s=60.0)) as engine:
        made = Desk(streaming, engine)
        yield made
        for host in made.hosts:
            host.close(30.0)


def test_a_stream_that_its_server_leaves_is_continued_by_the_next(desk: Desk) -> None:
    desk.streaming.put("a.jsonl", range(20))
    first = desk.host()
    made = first.submit(desk.data())
    until(lambda: desk.streaming.parts())
    assert first.close(30.0)
    desk.streaming.put("b.jsonl", range(20, 30))
    host = desk.host()
    until(lambda: len(desk.streaming.parts()) == 2)
    desk.streaming.check_squares(30)
    until(lambda: (host.get(made.id).progress or {}).get("rows") == 10)
    progress = host.get(made.id).progress or {}
    assert progress["usd"] == progress["device_s"] > 0
    assert ("", "Square", "1") in host.used()
    assert [figures.rows for figures, _ in host.snapshots().values()] == [10]
    assert [rows for rows, _, _ in host.backlog("Square")] == [1]
    host.cancel(made.id)
    until(lambda: not host.snapshots())
    assert host.used()["", "Square", "1"].rows == 10


def test_a_stream_whose_model_goes_waits_until_it_is_back(desk: Desk) -> None:
    desk.streaming.put("a.jsonl", range(5))
    host = desk.host()
    made = host.submit(desk.data())
    until(lambda: desk.streaming.parts())
    desk.away = "Square was unloaded"
    assert host.let_go("Square", 30.0)
    until(lambda: (host.get(made.id).progress or {}).get("held") == "Square was unloaded")
    with pytest.raises(TryLater, match="unloaded"):
        host.submit(desk.data(output=f"{desk.streaming.path}/other"))
    desk.streaming.put("b.jsonl", range(5, 9))
    desk.away = ""
    until(lambda: len(desk.streaming.parts()) == 2)
    desk.streaming.check_squares(9)


def test_streams_stop_where_another_server_has_their_database(desk: Desk) -> None:
    desk.streaming.put("a.jsonl", range(5))
    host = desk.host()
    host.submit(desk.data())
    until(lambda: desk.streaming.parts())
    desk.elsewhere = Elsewhere("another server runs them", 1.0)
    until(lambda: not host.snapshots())
    with pytest.raises(Elsewhere):
        host.list()
    desk.elsewhere = None
    desk.streaming.put("b.jsonl", range(5, 9))
    until(lambda: len(desk.streaming.parts()) == 2)
    desk.streaming.check_squares(9)


def test_a_tenant_without_device_time_waits_and_goes_on(desk: Desk) -> None:
    spent = ["the tenant has used its device seconds"]
    desk.allowed = Allowance(blobs_for, withheld=lambda: spent[0])
    desk.streaming.put("a.jsonl", range(5))
    host = desk.host()
    made = host.submit(desk.data())
    until(lambda: (host.get(made.id).progress or {}).get("held") == spent[0])
    assert not desk.streaming.parts()
    spent[0] = ""
    until(lambda: desk.streaming.parts())
    desk.streaming.check_squares(5)


def test_more_streams_than_a_tenant_may_have_wait_or_are_refused(desk: Desk) -> None:
    desk.allowed = Allowance(blobs_for, concurrent_jobs=1, open_jobs=2)
    host = desk.host()
    host.submit(desk.data())
    other = host.submit(desk.data(output=f"{desk.streaming.path}/other"))
    until(lambda: "running job" in host.get(other.id).reason)
    assert host.get(other.id).state is JobState.QUEUED
    with pytest.raises(OverLimit):
        host.submit(desk.data(output=f"{desk.streaming.path}/third"))


def _confined(path: Path) -> Allowance:
    roots = Roots((str(path), "nats://broker:4222/red", "postgresql://db/red"))
    return Allowance(partial(confined_blobs, roots), partial(roots.check, field="output"), roots.check)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": "/etc"}, "below"),
        ({"output": "/etc/out"}, "output"),
        ({"source": "nats://broker:4222/blue"}, "source"),
        ({"source": "nats://broker:4222/red", "to": "nats://other:4222/red"}, "to"),
        ({"source": "nats://me:secret@broker:4222/red"}, "without a password"),
        ({"source": "postgresql://db/red?host=other", "table": "t", "cursor": "id"}, "without query parameters"),
        ({"source": "postgresql://db/blue", "table": "t", "cursor": "id"}, "source"),
        ({"threads": 2}, "the server's own replicas"),
        ({"nonsense": 1}, "nonsense"),
        ({"source": None}, "source"),
    ],
)  # fmt: skip
def test_what_a_tenant_may_not_reach_is_refused(desk: Desk, given: dict[str, Any], said: str) -> None:
    desk.allowed = _confined(desk.streaming.path)
    host = desk.host()
    data = {name: value for name, value in desk.data(**given).items() if value is not None}
    with pytest.raises(InvalidInput, match=said) as caught:
        host.submit(data)
    assert "secret" not in str(caught.value)
    assert not host.list()


def test_what_is_its_own_is_taken(desk: Desk) -> None:
    desk.allowed = _confined(desk.streaming.path)
    desk.away = ""
    desk.streaming.put("a.jsonl", range(3))
    host = desk.host()
    made = host.submit(desk.data(once=True), "red")
    until(lambda: host.get(made.id).state is JobState.DONE)
    desk.streaming.check_squares(3)
    assert [each.id for each in host.list(owner="red")] == [made.id]
    assert not host.list(owner="blue")


def _failed(host: StreamHost, stream_id: str) -> str:
    until(lambda: host.get(stream_id).state is JobState.FAILED)
    return host.get(stream_id).reason


def test_a_stream_whose_output_goes_fails_and_never_begins_again_by_itself(desk: Desk) -> None:
    streaming, away = desk.streaming, desk.streaming.path / "away"
    streaming.put("a.jsonl", range(5))
    first = desk.host()
    made = first.submit(desk.data())
    until(lambda: (first.get(made.id).progress or {}).get("rows") == 5)
    streaming.out.rename(away)
    streaming.put("b.jsonl", range(5, 9))
    assert "was deleted or replaced" in _failed(first, made.id)
    first.resume(made.id)
    assert "Put the folder back" in _failed(first, made.id)
    assert not streaming.parts()
    shutil.rmtree(streaming.out, ignore_errors=True)
    away.rename(streaming.out)
    first.resume(made.id)
    until(lambda: len(streaming.parts()) == 2)
    streaming.check_squares(9)
    first.close(30.0)
    streaming.out.rename(away)
    host = desk.host()  # as after a restart
    assert "was deleted or replaced" in _failed(host, made.id)
    assert not streaming.out.exists()
    host.submit(desk.data())  # who wants to begin anew says so
    until(lambda: len(streaming.ids()) == 9)


def test_what_a_stream_remarks_on_its_source_is_in_its_log(desk: Desk) -> None:
    desk.streaming.put("a.jsonl", range(5), "no JSON")
    host = desk.host()
    made = host.submit(desk.data())
    until(lambda: desk.streaming.parts())
    desk.streaming.put("a.jsonl", range(7))
    for remark in ("changed after being read", "has written its first dead letters"):
        until(lambda said=remark: any(said in text for _, text in host.notes(made.id)))


def test_an_output_that_another_stream_has_under_another_name_is_refused(desk: Desk) -> None:
    host = desk.host()
    host.submit(desk.data())
    link = desk.streaming.path / "link"
    link.symlink_to(desk.streaming.out)
    for alias in (str(link), f"{desk.streaming.out}/../out"):
        with pytest.raises(InvalidInput, match="under another path"):
            host.submit(desk.data(output=alias))
