"""How good predictions were, and what scaling decisions predict."""

from __future__ import annotations

import math

import pytest

from twoshift.policy.autoscale import FleetState, ReplicaState
from twoshift.policy.calibration import calibrate
from twoshift.policy.scale_scores import COLD_START, LOAD, ScaleScores
from twoshift.prediction_ports import Prediction


def said(predicted: float, measured: float, what: str = "eta", low: float | None = None, high: float | None = None):
    return Prediction("job", "m", what, "s", predicted, measured, 0.0, low=low, high=high)


def test_predictions_are_scored_by_ratio_and_by_range() -> None:
    found = calibrate(
        [
            said(10, 11, low=9, high=12),
            said(10, 20, low=9, high=12),
            said(10, 8.5),
            said(10, 12.4, low=1, high=100),
            said(1, 2, "other"),
        ]
    )
    first, other = found
    assert (first.kind, first.what, first.count) == ("job", "eta", 4)
    assert first.median_ratio == pytest.approx(1.17)
    assert first.near_share == 0.75
    assert (first.ranged, first.inside_share) == (3, pytest.approx(2 / 3))
    assert (other.what, other.inside_share) == ("other", None)


def test_what_has_no_ratio_is_left_out() -> None:
    assert calibrate([said(0, 1), said(1, 0), said(math.inf, 1), said(1, math.nan)]) == []


def fleet(ready: int, starting: int = 0, rate: float = 80.0, cold_start_s: float = 5.0) -> FleetState:
    replicas = ReplicaState(
        ready=ready, starting=starting, live_rows_per_s=rate, replica_rows_per_s=50.0, cold_start_s=cold_start_s
    )
    return FleetState(replicas)


def test_added_replicas_are_scored_when_they_answer_and_their_load_when_rates_have_settled() -> None:
    scores = ScaleScores()
    scores.decided(fleet(1), 2, 100.0)
    assert scores.seen(fleet(1, starting=1), 103.0) == []
    (start,) = scores.seen(fleet(2, rate=90.0), 107.5)
    assert start == (COLD_START, "s", 5.0, 7.5)
    assert scores.seen(fleet(2, rate=90.0), 120.0) == []
    (load,) = scores.seen(fleet(2, rate=90.0), 170.0)
    assert load == (LOAD, "share", pytest.approx(0.8), pytest.approx(0.9))
    assert scores.seen(fleet(2), 999.0) == []


def test_a_further_decision_takes_the_place_of_one_that_is_open() -> None:
    scores = ScaleScores()
    scores.decided(fleet(1), 2, 100.0)
    scores.decided(fleet(1), 2, 101.0)  # the same again: the time runs from the first
    scores.decided(fleet(2), 1, 102.0)
    assert scores.seen(fleet(2), 103.0) == []
    assert scores.seen(fleet(1), 104.0) == []  # nothing was started
    (load,) = scores.seen(fleet(1, rate=40.0), 165.0)
    assert load == (LOAD, "share", pytest.approx(1.6), pytest.approx(0.8))


def test_nothing_is_said_where_nothing_was_known() -> None:
    scores = ScaleScores()
    unknown = FleetState(ReplicaState(ready=0, starting=0))
    scores.decided(unknown, 1, 0.0)
    assert scores.seen(FleetState(ReplicaState(ready=1, starting=0)), 5.0) == []
    assert scores.seen(FleetState(ReplicaState(ready=1, starting=0)), 99.0) == []
