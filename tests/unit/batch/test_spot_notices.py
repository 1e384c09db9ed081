"""Notices that a machine will be taken away, as clouds write them."""

from __future__ import annotations

import pytest

from twoshift.batch.spot_notices import read_notice

NOON = 1_800_014_400.0  # 2027-01-15 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "left_s", "why"),
    [
        ('{"action": "terminate", "time": "2027-01-15T12:02:00Z"}', 120.0, "will terminate in 120 s"),
        ('{"action": "stop", "time": "2027-01-15T11:00:00Z"}', 0.0, "will stop in 0 s"),
        ('{"action": "stop", "time": "soon"}', 30.0, "will stop"),
        ('{"time": "2027-01-15T12:00:45"}', 45.0, "will preempt"),
        ("TRUE\n", 30.0, "preempted"),
        ("maintenance at noon", 30.0, "maintenance at noon"),
    ],
)
def test_a_notice_says_how_much_time_is_left(text: str, left_s: float, why: str) -> None:
    found = read_notice(text, NOON)
    assert found is not None
    assert found.left_s == pytest.approx(left_s)
    assert why in found.why


@pytest.mark.parametrize("text", ["", " \n", "FALSE", "false", "NONE"])
def test_a_machine_that_stays_is_no_notice(text: str) -> None:
    assert read_notice(text, NOON) is None
