"""Jobs on a server, without a server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyarrow import feather

pytest.importorskip("sqlalchemy")

from twoshift.batch.allowance import Allowance
from twoshift.batch.folder import one_coordinator
from twoshift.batch.hosted import HostedTables
from twoshift.batch.job_forecast import FIRST_ROWS
from twoshift.batch.job_host import JobHost
from twoshift.batch.job_seats import EngineReplica, LiveFleet
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.engine import Engine
from twoshift.errors import DeviceLost, InvalidInput, NotFound, OverLimit
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import RuntimeInfo
from twoshift.prediction_ports import Prediction
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.types import JobKindName, JobState, Lane

pytestmark = pytest.mark.slow


class Square:
    """x squared; waits before row 300 until the gate is open."""

    def __init__(self) -> None:
        self.gate, self.waits, self.loses = threading.Event(), threading.Event(), False

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        if self.loses and (columns["x"] >= 300).any():
            raise DeviceLost("the device is gone")
        if (columns["x"] >= 300).any():
            self.waits.set()
            self.gate.wait(120)
        return {"squared": columns["x"] ** 2}


class Fleet:
    """A host that can be started again over the same store."""

    def __init__(self, path: Path) -> None:
        self.path, self.model = path, Square()
        self.allowed: dict[str, Allowance] = {}
        self.scored: list[Prediction] = []
        pq.write_table(pa.table({"id": np.arange(500), "x": np.arange(500.0)}), path / "in.parquet")
        self.load()
        self.host = self.started()

    def load(self) -> None:
        info = RuntimeInfo("square", "sum", "python", "cpu", "fp32", 1, ("squared",))
        self.engine = Engine(HostModel(info, self.model), CallCost.line(1e-3, 1e-6), LaneLimits(slo_s=0.5, max_rows=64))
        self.replica = EngineReplica(self.engine)

    def started(self) -> JobHost:
        store = SqlJobs(Database(f"sqlite:///{self.path}/state.db"))
        self.host = JobHost(store, self.fleet_of, self.allowance_of, scored=self.scored.append)
        self.host.start()
        return self.host

    def allowance_of(self, owner: str) -> Allowance:
        return self.allowed.get(owner) or Allowance(lambda _: LocalBlobs())

    def fleet_of(self, name: str) -> LiveFleet:
        if name != "square":
            raise NotFound("model", name, "one of square")
        return LiveFleet(lambda: [self.replica], list, why_dead=lambda: self.engine.why_dead, most_workers=2)

    def settings(self, **more: Any) -> dict[str, Any]:
        given = {"inputs": [str(self.path / "in.parquet")], "output": str(self.path / "out"), "model": "square"}
        return {**given, "columns": ["x"], "keep": ["id"], "shard_rows": 50, **more}

    def wait(self, job_id: str, holds: Callable[[JobState], bool]) -> JobState:
        until_s = time.monotonic() + 30
        # One that has ended is told of in its log after its state is known
        while not holds(state := self.host.get(job_id).state) or (
            state in (JobState.DONE, JobState.FAILED) and job_id in self.host.running()
        ):
            assert time.monotonic() < until_s, self.host.get(job_id)
            time.sleep(0.02)
        return state

    def check(self) -> None:
        table = pq.read_table(self.path / "out").sort_by("id")
        assert table["id"].to_pylist() == list(range(500))
        assert table["squared"].to_pylist() == [float(k) ** 2 for k in range(500)]
        assert (self.path / "out" / "_SUCCESS").exists()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.model.gate.set()
    made.host.close(20)
    made.engine.close()


def test_a_job_whose_model_has_died_waits_for_the_next_server(fleet: Fleet) -> None:
    fleet.model.loses = True
    job = fleet.host.submit(fleet.settings())
    fleet.wait(job.id, lambda _: fleet.host.get(job.id).reason.startswith("the engine of the model has failed"))
    assert fleet.host.get(job.id).state is JobState.QUEUED
    fleet.host.close(20)
    fleet.model.loses = False
    fleet.model.gate.set()
    fleet.load()
    fleet.started()
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()


def test_a_job_asks_for_replicas_only_as_far_as_its_model_may_have_them(fleet: Fleet) -> None:
    with pytest.raises(InvalidInput, match=r"workers: 3 cannot be used; expected at most 2, .*batch_replicas"):
        fleet.host.submit(fleet.settings(workers=3))
    with pytest.raises(InvalidInput, match="workers: 'auto' cannot be used; expected a number"):
        fleet.host.submit(fleet.settings(workers="auto", window="1h"))
    job = fleet.host.submit(fleet.settings(workers=2))
    fleet.wait(job.id, lambda state: state is JobState.RUNNING)
    assert [asked for _, _, asked in fleet.host.backlog("square")] == [2]
    fleet.model.gate.set()
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()


def test_a_job_is_done_with_its_log_and_progress(fleet: Fleet) -> None:
    fleet.model.gate.set()
    job = fleet.host.submit(fleet.settings())
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()
    found = fleet.host.get(job.id)
    assert found.progress is not None
    assert found.progress["shards_done"] == 10
    assert found.progress["harvested_s"] > 0
    assert [text for _, text in fleet.host.notes(job.id)][-1] == "done"
    whole = next(each for each in fleet.scored if each.what == FIRST_ROWS)
    assert (whole.kind, whole.subject, whole.predicted > 0, whole.measured > 0) == ("job", job.id, True, True)


def test_a_job_says_what_it_has_left_against_its_window(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings(window="1h"))
    while not (found := fleet.host.backlog("square")) or not 0 < found[0][0] < 500:  # before and after the first look
        time.sleep(0.02)
    ((rows_left, window_left_s, _),) = found
    assert 0 < rows_left < 500
    assert 3500 < window_left_s < 3600
    assert fleet.host.backlog("another") == []
    fleet.model.gate.set()
    fleet.wait(job.id, lambda state: state.is_over and not fleet.host.backlog("square"))


def test_a_job_goes_on_by_itself_after_a_restart(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings(grace_seconds=0.0))
    fleet.wait(job.id, lambda state: state is JobState.RUNNING)
    while not list(fleet.path.glob("out/part-*")):
        time.sleep(0.02)
    fleet.host.close(0.0)
    fleet.model.gate.set()
    fleet.started()
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()
    assert any("shards were already done" in text for _, text in fleet.host.notes(job.id))


def test_a_job_is_paused_goes_on_and_is_cancelled(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings(grace_seconds=0.1))
    fleet.wait(job.id, lambda state: state is JobState.RUNNING)
    fleet.host.pause(job.id)
    fleet.wait(job.id, lambda state: state is JobState.PAUSED)
    fleet.host.resume(job.id)
    fleet.wait(job.id, lambda state: state is JobState.RUNNING)
    fleet.host.cancel(job.id)
    fleet.wait(job.id, lambda state: state is JobState.CANCELLED)
    with pytest.raises(InvalidInput, match="it cannot be cancelled any more"):
        fleet.host.cancel(job.id)
    with pytest.raises(InvalidInput, match="only a job that is paused or has failed can be resumed"):
        fleet.host.resume(job.id)


def test_a_job_that_was_paused_is_not_scored_also_where_it_ends_all_the_same(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings(shard_rows=500))  # one shard, which a pause lets end
    while not (fleet.host.running() and fleet.model.waits.wait(0.02)):
        assert fleet.host.get(job.id).state is not JobState.FAILED
    fleet.host.pause(job.id)
    fleet.model.gate.set()
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE, "nothing is left to resume"
    fleet.check()
    while job.id in fleet.host.running():
        time.sleep(0.02)
    assert fleet.scored == []
    with pytest.raises(InvalidInput, match="only a job that is paused or has failed can be resumed"):
        fleet.host.resume(job.id)


def test_a_job_that_is_cancelled_leaves_a_report_of_what_it_did(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings(grace_seconds=0.1))
    while not list(fleet.path.glob("out/part-*")):
        time.sleep(0.02)
    fleet.host.cancel(job.id)
    while not (fleet.path / "out" / "_twoshift" / "report.json").exists():
        time.sleep(0.02)
    report = json.loads((fleet.path / "out" / "_twoshift" / "report.json").read_text())
    assert (report["state"], report["reason"], report["shards"]) == ("stopped", "cancelled", 10)
    assert 0 < report["shards_done"] < 10
    assert report["harvested_s"] > 0
    assert not (fleet.path / "out" / "_SUCCESS").exists()


def test_a_job_whose_folder_another_run_has_waits_for_it(fleet: Fleet) -> None:
    fleet.model.gate.set()
    with one_coordinator(str(fleet.path / "out")):
        job = fleet.host.submit(fleet.settings())
        fleet.wait(job.id, lambda state: state is JobState.QUEUED and bool(fleet.host.get(job.id).reason))
        assert "no other run is using" in fleet.host.get(job.id).reason
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()


def test_several_jobs_run_side_by_side(fleet: Fleet) -> None:
    fleet.model.gate.set()
    jobs = [fleet.host.submit(fleet.settings(output=str(fleet.path / f"out{k}"))) for k in range(3)]
    for job in jobs:
        assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    assert [each.id for each in fleet.host.list()] == [job.id for job in reversed(jobs)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "other"}, "one of square"),
        ({"engine": "ray"}, "server's own replicas"),
        ({"windw": "2h"}, "window"),
        ({"prompt": "{x}", "columns": []}, "because square is not a language model"),
        ({"hours": "25:00-26:00"}, "hours such as 22:00-06:00"),
        ({"max_live_load": 2.0}, "a share"),
        ({"inputs": ["/nowhere/at/all.parquet"]}, "/nowhere"),
        ({"keep": ["idd"]}, "idd"),
        ({"keep": ["odd"], "inputs": ["odd.arrow"]}, "columns with types that Parquet supports; odd has "),
    ],
)
def test_a_job_that_cannot_run_here_is_refused(
    fleet: Fleet, change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = pa.table({"x": [1.0], "odd": pa.nulls(1, pa.month_day_nano_interval())})
    monkeypatch.chdir(fleet.path)
    feather.write_feather(odd, "odd.arrow")
    with pytest.raises(InvalidInput, match=said):
        fleet.host.submit(fleet.settings(**change))
    assert fleet.host.list() == []


class Swapping(LocalBlobs):
    """A file becomes a link to another one between two looks at it."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path, self._target = path, target

    def open(self, location: str) -> BinaryIO:
        opened = super().open(location)
        self._path.unlink()
        self._path.symlink_to(self._target)
        return opened


def test_an_input_that_is_replaced_by_a_link_is_refused_and_nothing_is_said_of_where_it_leads(fleet: Fleet) -> None:
    secret, swapped = fleet.path / "secret", fleet.path / "swapped.parquet"
    secret.write_bytes(b"x" * 12_345)
    swapped.write_bytes((fleet.path / "in.parquet").read_bytes())
    fleet.allowed["red"] = Allowance(lambda _: Swapping(swapped, secret))
    with pytest.raises(InvalidInput, match="has changed after the job listed its input") as caught:
        fleet.host.submit(fleet.settings(inputs=[str(swapped)]), "red")
    assert caught.value.field == "inputs"
    assert "12345" not in str(caught.value).replace(",", "")


def test_a_damaged_input_is_the_requests_fault(fleet: Fleet) -> None:
    (fleet.path / "bad.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(InvalidInput, match="is damaged or truncated"):
        fleet.host.submit(fleet.settings(inputs=[str(fleet.path / "bad.parquet")]))


def test_a_job_that_fails_says_why_and_can_go_on_later(fleet: Fleet) -> None:
    fleet.model.gate.set()
    (fleet.path / "out").mkdir()
    (fleet.path / "out" / "part-of-something-else").touch()
    job = fleet.host.submit(fleet.settings())
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.FAILED
    assert "part-of-something-else" in fleet.host.get(job.id).reason
    (fleet.path / "out" / "part-of-something-else").unlink()
    fleet.host.resume(job.id)
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()


def test_the_same_job_again_is_the_one_that_runs_and_another_in_its_folder_is_refused(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings())
    assert fleet.host.submit(fleet.settings()).id == job.id
    with pytest.raises(InvalidInput, match=job.id):
        fleet.host.submit(fleet.settings(shard_rows=7))


def allowed(**limits: Any) -> Allowance:
    return Allowance(lambda _: LocalBlobs(), **limits)


def test_an_owner_has_only_so_many_jobs_at_a_time_and_others_go_on(fleet: Fleet) -> None:
    fleet.allowed["red"] = allowed(concurrent_jobs=1, open_jobs=2)
    first, second = (
        fleet.host.submit(fleet.settings(output=str(fleet.path / name)), "red") for name in ("red-1", "red-2")
    )
    with pytest.raises(OverLimit, match="limit of 2 queued and running jobs"):
        fleet.host.submit(fleet.settings(output=str(fleet.path / "red-3")), "red")
    other = fleet.host.submit(fleet.settings(output=str(fleet.path / "blue-1")), "blue")
    fleet.wait(other.id, lambda state: state is JobState.RUNNING)
    assert fleet.host.get(second.id).state is JobState.QUEUED
    assert "limit of 1 running job" in fleet.host.get(second.id).reason
    fleet.model.gate.set()
    for job in (first, second, other):
        assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    assert fleet.host.used()["red", "square", "1"].rows == 1000
    assert fleet.host.used()["blue", "square", "1"].rows == 500


def test_where_not_all_run_at_once_the_one_whose_window_ends_first_is_next(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.batch.running.MOST_AT_ONCE", 1)
    first, *others = [
        fleet.host.submit(fleet.settings(output=str(fleet.path / f"out-{name}"), window=window))
        for name, window in (("a", None), ("b", None), ("c", "5h"), ("d", "1h"))
    ]
    states = [fleet.host.get(each.id).state for each in others]
    assert states == [JobState.QUEUED] * 3
    fleet.model.gate.set()
    for each in (first, *others):
        assert fleet.wait(each.id, lambda state: state.is_over) is JobState.DONE
    began_s = [fleet.host.notes(each.id)[-1][0] for each in others]
    assert sorted(range(3), key=lambda k: began_s[k]) == [2, 1, 0]


def test_more_jobs_than_are_looked_at_at_once_all_have_their_turn(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.batch.running.MOST_AT_ONCE", 2)
    jobs = [fleet.host.submit(fleet.settings(output=str(fleet.path / f"out-{k}"))) for k in range(7)]
    assert [fleet.host.get(each.id).state for each in jobs].count(JobState.QUEUED) == 5
    fleet.model.gate.set()
    for each in jobs:
        assert fleet.wait(each.id, lambda state: state.is_over) is JobState.DONE


def test_jobs_of_who_may_have_no_device_wait_and_go_on_when_it_may(fleet: Fleet) -> None:
    fleet.model.gate.set()
    why = ["nothing is left for today"]
    fleet.allowed["red"] = allowed(withheld=lambda: why[0])
    job = fleet.host.submit(fleet.settings(), "red")
    fleet.wait(job.id, lambda _: (fleet.host.get(job.id).progress or {}).get("held") == why[0])
    assert fleet.host.used()["red", "square", "1"].rows == 0
    why[0] = ""
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    used = fleet.host.used()["red", "square", "1"]
    assert used.rows == 500
    assert used.device_s == pytest.approx(fleet.engine.stats().lanes[Lane.BATCH].device_s)


def not_now() -> str:
    """Hours of the day that begin in twelve hours."""
    hour = (time.localtime().tm_hour + 12) % 24
    return f"{hour:02}:00-{(hour + 1) % 24:02}:00"


def test_jobs_that_are_held_back_keep_none_from_beginning_that_could_run(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.batch.running.MOST_HELD", 3)
    monkeypatch.setattr("twoshift.batch.running.MOST_AT_ONCE", 2)
    fleet.model.gate.set()
    held = [fleet.host.submit(fleet.settings(output=str(fleet.path / f"held-{k}"), hours=not_now())) for k in range(9)]
    job = fleet.host.submit(fleet.settings())
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    found = [fleet.host.get(each.id) for each in held]
    assert [each.state for each in found] == [JobState.RUNNING] * 3 + [JobState.QUEUED] * 6
    assert all("may run only during its hours" in each.reason for each in found[3:])


def test_jobs_of_one_owner_that_are_held_back_leave_it_its_turn(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.batch.running.MOST_OF_ONE", 2)
    fleet.model.gate.set()
    for k in range(4):
        fleet.host.submit(fleet.settings(output=str(fleet.path / f"held-{k}"), hours=not_now()), "red")
    job = fleet.host.submit(fleet.settings(), "red")
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.wait(job.id, lambda _: len(fleet.host.running()) == 2)


def test_jobs_that_come_to_be_held_back_go_back_to_the_queue_and_on_from_there(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.batch.running.MOST_HELD", 1)
    monkeypatch.setattr("twoshift.batch.running.HELD_S", 0.1)
    why = [""]
    fleet.allowed[""] = allowed(withheld=lambda: why[0])
    jobs = [fleet.host.submit(fleet.settings(output=str(fleet.path / f"out-{k}"))) for k in range(3)]
    for each in jobs:
        fleet.wait(each.id, lambda state: state is JobState.RUNNING)
    why[0] = "nothing is left for today"
    for each in jobs[1:]:
        fleet.wait(each.id, lambda state: state is JobState.QUEUED)
        assert fleet.host.get(each.id).reason == why[0]
    fleet.wait(jobs[0].id, lambda _: list(fleet.host.running()) == [jobs[0].id])
    why[0] = ""
    fleet.model.gate.set()
    for each in jobs:
        assert fleet.wait(each.id, lambda state: state.is_over) is JobState.DONE


def test_a_job_that_waits_for_others_says_so(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.batch.running.MOST_AT_ONCE", 1)
    for name in ("first", "second"):
        job = fleet.host.submit(fleet.settings(output=str(fleet.path / name)))
    assert (job.state, job.reason[:8]) == (JobState.QUEUED, "at most ")


def test_a_job_that_is_cancelled_while_it_waits_runs_nothing(fleet: Fleet) -> None:
    fleet.model.gate.set()
    fleet.allowed["red"] = allowed(withheld=lambda: "nothing is left for today")
    job = fleet.host.submit(fleet.settings(), "red")
    fleet.wait(job.id, lambda _: bool((fleet.host.get(job.id).progress or {}).get("held")))
    fleet.host.cancel(job.id)
    fleet.wait(job.id, lambda _: not fleet.host.running())
    assert fleet.host.used()["red", "square", "1"].rows == 0


def test_an_output_that_is_not_ones_own_is_refused_before_anything_is_said_about_it(fleet: Fleet) -> None:
    def check(output: str) -> None:
        raise InvalidInput("output", output, "a location below /data/red")

    job = fleet.host.submit(fleet.settings(), "blue")
    for owner, told in (("red", "a location below"), ("green", "another job uses this folder")):
        fleet.allowed["red"] = allowed(check_output=check)
        with pytest.raises(InvalidInput, match=told) as refused:
            fleet.host.submit(fleet.settings(), owner)
        assert job.id not in str(refused.value)


def test_a_pause_outlives_the_server(fleet: Fleet) -> None:
    job = fleet.host.submit(fleet.settings(grace_seconds=5.0))
    fleet.wait(job.id, lambda state: state is JobState.RUNNING)
    assert fleet.host.pause(job.id).state is JobState.PAUSED
    fleet.host.close(0.0)  # in the middle of its last shards
    fleet.model.gate.set()
    fleet.started()
    assert fleet.host.get(job.id).state is JobState.PAUSED
    fleet.host.resume(job.id)
    assert fleet.wait(job.id, lambda state: state.is_over) is JobState.DONE
    fleet.check()


class Watched(HostedTables):
    """A kind whose jobs only the server changes; it notes what the host asks of it."""

    def __init__(self, allowance_of: Callable[[str], Allowance]) -> None:
        super().__init__(allowance_of)
        self.begun: list[str] = []
        self.over, self.kept = threading.Event(), threading.Event()

    def check_change(self, job_id: str) -> None:
        raise InvalidInput("job", job_id, "one that is changed here")

    def check_begin(self, settings: JobSettings, owner: str) -> None:
        self.begun.append(settings.output)

    def ended(self, job_id: str) -> None:
        self.over.set()

    def keep(self) -> None:
        self.kept.set()


def test_what_a_server_does_for_a_kind_is_asked_of_that_kind_and_one_keeper_serves_all(fleet: Fleet) -> None:
    kind = fleet.host.kinds[JobKindName.TABLE] = Watched(fleet.allowance_of)
    job = fleet.host.submit(fleet.settings())
    for change in (fleet.host.pause, fleet.host.cancel, fleet.host.resume):
        with pytest.raises(InvalidInput, match="one that is changed here"):
            change(job.id)
    fleet.model.gate.set()
    fleet.wait(job.id, lambda state: state is JobState.DONE)
    fleet.check()
    assert kind.begun == [str(fleet.path / "out")]
    assert kind.over.wait(120)
    assert kind.kept.wait(120)
    assert [each.name for each in threading.enumerate() if "keeper" in each.name] == ["twoshift-keeper"]
