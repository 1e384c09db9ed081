"""What tenants have had of the devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twoshift.batch.job_seats import Used
from twoshift.fleet.tenancy import counted
from twoshift.policy.lane_values import LaneUse
from twoshift.serve.ledger import Counted


def test_what_nobody_pays_for_is_anyones_and_counted_once() -> None:
    uses = {
        "anyone": LaneUse(rows=3, tokens=30, device_s=1.5, output_tokens=7, output_s=1.0),
        "": LaneUse(rows=1, tokens=4, device_s=0.5, output_tokens=1, output_s=0.25),
    }
    other = SimpleNamespace(tenants={"anyone": LaneUse(rows=2, tokens=20, device_s=0.5)})
    model: Any = SimpleNamespace(stats_by_version=lambda: {"1": SimpleNamespace(tenants=uses), "2": other})
    jobs = {
        ("", "m", "1"): Used(2.0, rows=5, tokens=50),
        ("anyone", "m", "1"): Used(0.25, rows=1, tokens=10),
        ("red", "m", "2"): Used(1.0, rows=2, tokens=20, output_tokens=5, output_s=0.5),
    }
    streams = {("red", "m", "1"): Used(0.5, rows=4, tokens=40)}
    background = {"batch": lambda: jobs, "micro": lambda: streams}
    assert sorted(counted({"m": model}, background), key=lambda each: each.who) == [
        Counted("anyone", "batch", "m", 6, 60, 2.25, 2.25),
        Counted("anyone", "live", "m", 4, 34, 2.0, 0.0, 8, 1.25),
        Counted("anyone", "live", "m", 2, 20, 0.5, version="2"),
        Counted("red", "batch", "m", 2, 20, 1.0, 1.0, 5, 0.5, version="2"),
        Counted("red", "micro", "m", 4, 40, 0.5, 0.5),
    ]
