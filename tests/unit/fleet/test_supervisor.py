"""What becomes of replicas whatever goes wrong around them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from twoshift.errors import Broken
from twoshift.fleet import supervisor as module
from twoshift.fleet.member import Member
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.fleet.supervisor import Supervisor
from twoshift.serve.model_settings import ModelSettings
from twoshift.types import ReplicaCounts
from twoshift.wiring.served_models import served_model
from waiting import until

pytestmark = pytest.mark.slow


class Nobody:
    """Follows, and does nothing."""

    def opened(self, member: Member) -> None: ...

    def leaving(self, member: Member) -> None: ...

    def ended(self, member: Member) -> None: ...

    def said(self, member: Member, message: Any) -> None: ...


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    (tmp_path / "m.py").write_text(
        "class Same:\n    example = {'x': 1.0}\n    def load(self): pass\n"
        "    def predict(self, batch): return {'y': batch['x']}\n"
    )
    settings = ModelSettings(model=f"{tmp_path / 'm.py'}:Same", slo_ms=1000.0)
    return ReplicaSpec("same", settings, served_model)


def test_who_cannot_be_told_ends_nothing_and_a_killed_one_is_replaced(spec: ReplicaSpec) -> None:
    def deaf(_text: str) -> None:
        raise BrokenPipeError

    fleet = Supervisor(spec, 1, (), Nobody(), deaf)
    try:
        fleet.start()
        (first,) = fleet.members()
        fleet.replace(first, "for the test")
        until_s = time.monotonic() + 60
        while not any(each is not first for each in fleet.members()):
            assert time.monotonic() < until_s
            time.sleep(0.05)
    finally:
        fleet.close()


def test_replicas_that_nobody_needs_sleep_and_wake_within_their_measured_start(spec: ReplicaSpec) -> None:
    fleet = Supervisor(spec, 1, (), Nobody(), lambda _: None)
    try:
        fleet.start()
        assert fleet.cold_start_s > 0
        assert fleet.wakes_in_s() is None
        fleet.scale_to(0)
        until(lambda: fleet.wakes_in_s() == fleet.cold_start_s)
        assert not fleet.members()
        assert fleet.replicas() == ReplicaCounts(0, 0)
        fleet.scale_to(1)
        until(lambda: bool(fleet.members()))
        assert fleet.wakes_in_s() is None
        assert fleet.crashes == 0
    finally:
        fleet.close()


def test_where_no_process_is_to_be_had_the_start_says_so(spec: ReplicaSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, "Child", none)
    fleet = Supervisor(spec, 1, (), Nobody(), lambda _: None)
    try:
        with pytest.raises(Broken, match="Too many open files"):
            fleet.start()
    finally:
        fleet.close()
