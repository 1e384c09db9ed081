"""Numbers read as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.report import Axis, format_number, format_value
from twoshift.report.formats import caption, tick_labels


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.0123, "0.0123"),
        (12.345, "12.3"),
        (1234.4, "1,234"),
        (9_999.9, "10k"),
        (999_960, "1M"),
        (-4.2e9, "−4.2G"),
        (1e18, "1e+18"),
        (3e-7, "3e-07"),
        (math.nan, "—"),
        (math.inf, "—"),
    ],
)
def test_numbers_keep_three_digits_and_an_si_suffix(value: float, written: str) -> None:
    assert format_number(value) == written


@pytest.mark.parametrize(
    ("value", "axis", "written"),
    [
        (7.5, Axis(kind="hours"), "07:30"),
        (24, Axis(kind="hours"), "24:00"),
        (60, Axis(kind="hours"), "day 3 12:00"),
        (38.12, Axis(kind="ms"), "38.1 ms"),
        (2500, Axis(kind="ms"), "2.5 s"),
        (45, Axis(kind="seconds"), "45 s"),
        (43_200, Axis(kind="seconds"), "12 h"),
        (0.9993, Axis(kind="share"), "99.9 %"),
        (229.3, Axis(kind="usd"), "$229.30"),
        (18_240, Axis(kind="usd"), "$18,240"),
        (-2.5e9, Axis(kind="usd"), "−$2.5B"),
        (0.0042, Axis(kind="usd"), "$0.0042"),
        (1206, Axis(unit="rows/s"), "1,206 rows/s"),
        (math.nan, Axis(kind="usd"), "—"),
    ],
)
def test_each_kind_of_value_is_written_its_own_way(value: float, axis: Axis, written: str) -> None:
    assert format_value(value, axis) == written


@pytest.mark.parametrize(
    ("ticks", "axis", "labels"),
    [
        ((0, 500, 1000, 1500), Axis(), ("0", "500", "1,000", "1,500")),
        ((0, 5e5, 1e6), Axis(), ("0", "0.5M", "1.0M")),
        ((-2, 0, 2), Axis(), ("−2", "0", "2")),
        ((0, 0.25, 0.5), Axis(kind="share"), ("0", "25", "50")),
        ((0, 0.5, 1), Axis(kind="usd"), ("$0", "$0.50", "$1.00")),
        ((0, 12, 24), Axis(kind="hours"), ("00:00", "12:00", "24:00")),
        ((1, 60, 3600), Axis(kind="seconds", scale="log"), ("1 s", "1 min", "1 h")),
        ((1, 10, 1000), Axis(kind="ms", scale="log"), ("1 ms", "10 ms", "1 s")),
        ((), Axis(), ()),
    ],
)
def test_labels_along_an_axis_agree_with_each_other(ticks, axis: Axis, labels) -> None:
    assert tick_labels(ticks, axis, max(map(abs, ticks), default=1)) == labels


def test_a_caption_names_the_unit_the_ticks_leave_out() -> None:
    assert caption(Axis("finish time", kind="seconds"), 43_200) == "finish time (h)"
    assert caption(Axis("load", "rows/s"), 10) == "load (rows/s)"
    assert caption(Axis(unit="GB"), 10) == "GB"
    assert caption(Axis("latency", kind="ms", scale="log"), 10) == "latency"


@given(st.floats(), st.sampled_from(["number", "hours", "ms", "seconds", "usd", "share"]))
def test_every_float_can_be_written(value: float, kind) -> None:
    assert format_value(value, Axis(kind=kind))
