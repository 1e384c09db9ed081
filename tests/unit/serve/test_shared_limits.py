"""Limits that hold over all processes of a server."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from limit_processes import SPAWN, callers, come_and_go, key, start, stay, stay_locked, take

from twoshift.errors import Broken, InvalidInput, OverLimit
from twoshift.serve.keys import Keys, KeySettings
from twoshift.serve.shared_limits import SharedLimits
from twoshift.serve.tenants import TenantSettings, day_of

OTHERS = 3  # processes beside this one
WAIT_S = 150.0  # against hangs


class Shared:
    """A file of limits, and the processes that a test starts over it."""

    def __init__(self, path: Path) -> None:
        self.path, self._started = path, list[BaseProcess]()

    def create(self, keys: dict[str, KeySettings], **limits: Any) -> tuple[dict[str, KeySettings], Any]:
        tenants = {"red": TenantSettings(**limits)}
        SharedLimits.create(self.path, keys, tenants, 1 + OTHERS)
        return keys, tenants

    def start(self, target: Callable[..., None], *given: Any) -> Connection:
        process, said = start(target, *given)
        self._started.append(process)
        return said

    def together(self, target: Callable[..., None], times: int, *given: Any) -> list[Any]:
        """What each of the others says after all of them began at once."""
        found = [self.start(target, times, *given[:-2], self.path, 1 + each, *given[-2:]) for each in range(OTHERS)]
        for said in found:
            assert heard(said) == "ready"
        for said in found:
            said.send("begin")
        return [heard(said) for said in found]

    def kill(self) -> None:
        for each in self._started:
            each.kill()
            each.join()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path / "limits")
    yield made
    made.kill()


def heard(said: Connection) -> Any:
    assert said.poll(WAIT_S)
    return said.recv()


@pytest.mark.slow
def test_all_processes_together_take_no_more_than_a_keys_rate(shared: Shared) -> None:
    made = shared.create({"alice": key("alice", requests_per_minute=1800)}, requests_per_second=1e6)  # 300 at once
    found = shared.together(take, 250, *made)
    assert sum(let_in for (let_in,) in found) == 300
    (later,) = callers(shared.path, 0, *made, now_s=2.0)
    for _ in range(60):
        later.enter("m")
    with pytest.raises(OverLimit, match="the key alice is over its limit of 1800 requests per minute"):
        later.enter("m")


@pytest.mark.slow
def test_what_a_key_is_refused_costs_its_tenant_nothing_in_any_process(shared: Shared) -> None:
    keys = {name: key(name, requests_per_minute=1200) for name in ("alice", "anna")}  # 200 each
    made = shared.create(keys, requests_per_second=30)  # 300
    alice, anna = (sum(each) for each in zip(*shared.together(take, 250, *made), strict=True))
    assert alice + anna == 300
    assert max(alice, anna) <= 200


@pytest.mark.slow
def test_all_processes_together_run_no_more_requests_than_a_key_may(shared: Shared) -> None:
    made = shared.create({"alice": key("alice", concurrency=1)}, requests_per_second=1e6)
    assert max(shared.together(come_and_go, 200, SPAWN.Value("q", 0), *made)) == 1
    (who,) = callers(shared.path, 0, *made)
    who.enter("m")
    with pytest.raises(OverLimit, match="alice has reached its limit of 1 concurrent requests"):
        who.enter("m")


def test_what_a_killed_process_had_running_can_be_forgotten(shared: Shared) -> None:
    made = shared.create({"alice": key("alice", concurrency=3)})
    assert heard(shared.start(stay, 2, shared.path, 2, *made)) == "inside"
    shared.kill()
    limits = SharedLimits.open(shared.path, 0)
    who = Keys(made[0], shared=limits).caller("Bearer alice")
    who.enter("m")
    with pytest.raises(OverLimit, match="limit of 3 concurrent"):
        who.enter("m")
    limits.forget(2)
    who.enter("m")
    who.enter("m")
    with pytest.raises(OverLimit, match="limit of 3 concurrent"):
        who.enter("m")


def test_a_process_that_is_killed_while_it_holds_a_lock_holds_up_nobody(shared: Shared) -> None:
    keys, _ = made = shared.create({"alice": key("alice", requests_per_minute=60)})
    assert heard(shared.start(stay_locked, shared.path, 1, keys)) == "locked"
    waits = shared.start(take, 20, shared.path, 2, *made)
    assert heard(waits) == "ready"
    waits.send("begin")
    assert not waits.poll(0.2)
    shared._started[0].kill()
    assert heard(waits) == [10]


def test_a_process_that_is_started_again_finds_what_was_taken_and_runs_nothing(shared: Shared) -> None:
    made = shared.create({"alice": key("alice", requests_per_minute=24, concurrency=3)})  # four at once
    (first,) = callers(shared.path, 1, *made)
    for _ in range(3):
        first.enter("m")
    (again,) = callers(shared.path, 1, *made)
    again.enter("m")
    with pytest.raises(OverLimit, match="24 requests per minute"):
        again.enter("m")


def test_what_one_process_says_is_spent_is_refused_by_all(shared: Shared) -> None:
    keys, tenants = shared.create({"alice": key("alice")}, device_seconds_per_day=5)
    ledger, front = (Keys(keys, tenants=tenants, shared=SharedLimits.open(shared.path, each)) for each in (0, 1))
    front.caller("Bearer alice").enter("m")
    ledger.tenants["red"].spent(day_of(time.time()), 5.0)
    with pytest.raises(OverLimit, match="5 device seconds for today"):
        front.caller("Bearer alice").enter("m")
    ledger.tenants["red"].spent(day_of(time.time()), 4.0)
    front.caller("Bearer alice").enter("m")


def test_only_what_is_limited_has_a_place_in_the_file(shared: Shared) -> None:
    keys, tenants = shared.create({"alice": key("alice"), "anna": key("anna", concurrency=1)})
    limits = SharedLimits.open(shared.path, 0)
    limits.key("anna")
    for missing in (limits.key, limits.tenant):
        with pytest.raises(Broken, match="did not exist"):
            missing("alice" if missing == limits.key else "red")
    who = Keys(keys, tenants=tenants, shared=limits).caller("Bearer alice")
    limits.close()  # it is not looked at for her
    who.enter("m")
    who.leave()


def test_the_file_is_for_this_user_and_for_so_many_processes(shared: Shared) -> None:
    shared.path.write_text("left by a server that was killed")
    shared.create({"alice": key("alice", concurrency=1)})
    assert stat.S_IMODE(shared.path.stat().st_mode) == 0o600
    for process in (-1, 1 + OTHERS):
        with pytest.raises(InvalidInput, match="a number from 0 to 3"):
            SharedLimits.open(shared.path, process)
