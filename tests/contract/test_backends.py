"""What is true of every backend: an engine in this process, child processes, replicas on Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("uvloop")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from backends import (
    HERE,
    KINDS,
    MARKS,
    MOST_WAITING,
    NAME,
    PROCESSES,
    SOURCE,
    Front,
    check_refusals,
    each_kind,
    own_ray,
    pids,
    remote,
    values,
)

from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput, Late, TooLarge, TryLater
from twoshift.serve.model_settings import ModelSettings
from twoshift.types import Lane
from twoshift.wiring.backends import fleet_model, ray_model
from twoshift.wiring.served_models import served_model
from waiting import until

pytestmark = MARKS
ray_here = pytest.fixture(scope="module")(own_ray)
kind = pytest.fixture(scope="module", params=KINDS)(each_kind)
TEXTS = ["a", "some words", "and others, too", "é", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("backends")
    (made / "m.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSHIFT_HOME", str(made / "home"))
        yield made


@contextmanager
def opened(kind: str, folder: Path, replicas: int) -> Iterator[Front]:
    settings = ModelSettings(
        model=f"{folder}/m.py:{NAME}", slo_ms=1000, max_batch=4, max_waiting=MOST_WAITING, replicas=replicas,
        threads=1,  # there is room for two backends on one Ray
    )  # fmt: skip
    if kind == HERE:
        front = Front(kind, served_model(NAME, settings, lambda _: None))
    elif kind == PROCESSES:
        front = Front(kind, fleet_model(NAME, settings, lambda _: None))
    else:
        front = Front(kind, ray_model(NAME, settings, None, lambda _: None))
    try:
        yield front
    finally:
        front.close()


@pytest.fixture(scope="module")
def front(kind: str, folder: Path) -> Iterator[Front]:
    """For tests that leave it as they found it; with two replicas where it has any."""
    with opened(kind, folder, 2) as made:
        yield made


def both(front: Front) -> set[int]:
    """Wait until two replicas answer; which ones."""
    found = set[int]()

    def seen() -> bool:
        found.clear()
        for _ in range(8):
            try:
                found.update(pids(front.ask(["a"]).result()))
            except TryLater:  # one has just died
                return False
        return len(found) == 2

    until(seen)
    return set(found)


def test_rows_are_answered_in_order_and_as_the_engine_here_answers_them(front: Front, folder: Path) -> None:
    with opened(HERE, folder, 1) as here:
        expected = values(here.ask(TEXTS).result())
    answer = front.ask(TEXTS).result()
    assert values(answer) == expected
    assert [values(front.ask([text]).result())[0] for text in TEXTS] == expected
    assert answer.tokens >= len(TEXTS)
    assert answer.stages.forward > 0
    assert 0 < answer.stages.call_rows <= 4
    assert len({pid for _ in range(100) for pid in pids(front.ask(["a"]).result())}) == front.replicas


def test_rows_that_can_never_be_answered_are_refused_by_name(front: Front) -> None:
    with pytest.raises(TooLarge, match=r"input\[1\]"):
        front.ask(["a", "a " * 10_000]).result()
    with pytest.raises(TooLarge, match=rf"{MOST_WAITING + 1} rows"):
        front.ask(["a"] * (MOST_WAITING + 1)).result()
    with pytest.raises(InvalidInput, match="at least one row"):
        front.ask([]).result()
    with pytest.raises(Exception, match="this text is bad") as caught:
        front.ask(["raise it"]).result()
    assert "ArithmeticError" in f"{type(caught.value).__name__}: {caught.value}"
    assert values(front.ask(["a"]).result())


def test_a_time_that_the_model_gives_and_a_deadline_that_passes_are_told(front: Front, tmp_path: Path) -> None:
    with pytest.raises(TryLater, match="full, says the model") as caught:
        front.ask(["full"]).result()
    assert caught.value.retry_after_s == 6.5
    gate = tmp_path / "gate"
    late = front.ask([f"wait {gate}"], timeout_s=1.5)
    try:
        with pytest.raises(Late):
            late.result()
    finally:
        gate.touch()
    assert values(front.ask(["a"]).result())


def test_overload_is_refused_with_a_time_and_what_was_admitted_is_answered(front: Front, tmp_path: Path) -> None:
    running, held, release = front.hold(tmp_path, front.replicas)
    try:
        assert len(set(held)) == front.replicas
        asked = [front.ask(["a"]) for _ in range(MOST_WAITING * front.replicas + 8)]
        until(lambda: sum(each.done() for each in asked) >= 8)
    finally:
        release()
    check_refusals(asked)
    assert [pids(each.result()) for each in running] == [{pid} for pid in held]


def test_it_says_how_it_is_and_what_it_has_done(front: Front) -> None:
    backend = front.backend
    before = backend.stats().lanes[Lane.ONLINE].rows
    for _ in range(6):
        front.ask(["a", "b"]).result()
    until(lambda: backend.stats().lanes[Lane.ONLINE].rows >= before + 12)
    until(lambda: backend.waiting()[Lane.ONLINE].rows == 0)
    health = backend.health()
    assert (health.healthy, health.reason) == (True, "")
    until(lambda: backend.replicas().ready == front.replicas)
    assert backend.derived_now().capacity_rows_per_s > 0
    assert backend.info.checksum.startswith("sha256:")
    assert backend.most_rows == MOST_WAITING
    assert {tensor.name for tensor in backend.outputs} == {"value", "pid"}


def test_a_job_in_its_batch_lanes_answers_as_live_requests_are_answered(front: Front, tmp_path: Path) -> None:
    texts = [f"w{k}" for k in range(200)]
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), tmp_path / "in.parquet")
    settings = JobSettings(
        inputs=(str(tmp_path / "in.parquet"),), output=str(tmp_path / "out"), model=NAME, text="text", keep=("id",),
        shard_rows=20,
    )  # fmt: skip
    answered = list[float]()

    def report() -> None:
        if not answered:
            answered.extend(values(front.ask(texts[:MOST_WAITING]).result()))

    lane = front.run_job(settings, report)
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert table["id"].to_pylist() == list(range(len(texts)))
    assert table["value"].to_pylist()[:MOST_WAITING] == answered
    until(lambda: lane.used().rows >= len(texts))
    assert lane.used().device_s > 0


def test_a_server_that_drains_answers_what_it_has_and_takes_nothing_new(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    with opened(kind, folder, 1) as front:
        running, held, release = front.hold(tmp_path, 1)
        waiting = front.ask(["a"])
        until(lambda: front.backend.waiting()[Lane.ONLINE].rows == 1)
        front.call(front.service.drain)
        with pytest.raises(TryLater, match="shutting down"):
            front.ask(["b"]).result()
        assert not waiting.done()
        release()
        assert [pids(each.result()) for each in (*running, waiting)] == [{held[0]}] * 2


@remote
def test_a_replica_that_is_killed_is_replaced_and_what_it_ran_is_answered_where_the_cause_is_known(
    front: Front, tmp_path: Path
) -> None:
    before = both(front)
    (running,), (victim,), release = front.hold(tmp_path, 1)
    (survivor,) = before - {victim}
    os.kill(victim, signal.SIGKILL)
    if front.kind == PROCESSES:
        until((tmp_path / f"gate-0.{survivor}").exists)
        release()
        assert pids(running.result()) == {survivor}
    else:  # Ray does not say who has ended it: the request may have
        with pytest.raises(TryLater, match="lost while it ran") as caught:
            running.result()
        assert caught.value.retry_after_s >= 1
        assert len([*tmp_path.glob("gate-0.*")]) == 1  # nobody else was given it
    assert pids(front.ask(["a"]).result()) != {victim}  # by the survivor, unless the next one is there already
    assert victim not in both(front)
    until(lambda: front.backend.replicas().ready == 2)
    assert front.backend.health().healthy


@remote
def test_rows_that_wait_at_a_replica_that_is_killed_are_answered_by_the_other(front: Front, tmp_path: Path) -> None:
    both(front)
    running, held, release = front.hold(tmp_path, 2)
    waiting = [front.ask(["a"]) for _ in range(MOST_WAITING)]
    until(lambda: front.backend.waiting()[Lane.ONLINE].rows == MOST_WAITING)
    os.kill(held[0], signal.SIGKILL)
    assert isinstance(running[0].exception(), TryLater)
    release()
    assert {pid for each in waiting for pid in pids(each.result())} == {held[1]}
    both(front)


@remote
def test_a_replica_that_loads_other_weights_is_refused_by_name(
    front: Front, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = both(front)
    victim = min(before)
    (folder / "m.py").write_text(f"{SOURCE}\n# changed\n")
    try:
        os.kill(victim, signal.SIGKILL)
        until(lambda: "has loaded different weights" in caplog.text)
        assert "put the same files on every machine" in caplog.text
        until(lambda: front.backend.replicas().ready == 1)
        assert {pid for _ in range(8) for pid in pids(front.ask(["a"]).result())} == before - {victim}
    finally:
        (folder / "m.py").write_text(SOURCE)
    assert victim not in both(front)
