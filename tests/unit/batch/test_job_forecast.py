"""What was said of a job's end, and what came."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from twoshift.batch.coordinator import Ending
from twoshift.batch.job_forecast import ETA, FIRST_ROWS, JobForecast
from twoshift.batch.progress import NOTHING_YET, JobSnapshot
from twoshift.policy.deadline import Outlook, Verdict

BEGAN_S = 1000.0


def at(elapsed_s: float, share: float, eta_s: float | None) -> JobSnapshot:
    ends = (None, None, None) if eta_s is None else (BEGAN_S + eta_s, BEGAN_S + 0.8 * eta_s, BEGAN_S + 1.3 * eta_s)
    outlook = Outlook(Verdict.ON_TRACK, *ends, 1.0, None, None)
    return replace(NOTHING_YET, elapsed_s=elapsed_s, share=share, outlook=outlook)


def ended(ending: Ending = Ending.DONE, runs: int = 1) -> Any:
    summary = SimpleNamespace(predicted_s=80.0, elapsed_s=100.0, runs=(None,) * runs)
    return SimpleNamespace(ending=ending, last=at(100.0, 1.0, None), summary=summary)


def told(*snapshots: JobSnapshot, held: bool = False) -> JobForecast:
    now = [0.0]
    made = JobForecast(lambda: now[0])
    for each in snapshots:
        now[0] = BEGAN_S + each.elapsed_s
        made.heard(each, held)
    return made


def test_the_eta_at_a_tenth_is_held_against_the_end() -> None:
    forecast = told(at(1.0, 0.01, 500.0), at(10.0, 0.12, 90.0), at(50.0, 0.5, 99.0), at(99.0, 1.0, 100.0))
    first, eta = forecast.scored(ended(), "job-1", "red", "m")
    assert (first.what, first.predicted, first.measured, first.low) == (FIRST_ROWS, 80.0, 100.0, None)
    assert (eta.what, eta.subject, eta.owner, eta.model) == (ETA, "job-1", "red", "m")
    assert (eta.predicted, eta.measured) == (pytest.approx(90.0), 100.0)
    assert (eta.low, eta.high) == (pytest.approx(72.0), pytest.approx(117.0))


def test_what_says_nothing_of_a_prediction_is_left_out() -> None:
    assert [*told(at(10.0, 0.5, 20.0)).scored(ended(Ending.STOPPED), "j", "", "m")] == []
    assert [*told(at(10.0, 0.5, 20.0), held=True).scored(ended(), "j", "", "m")] == []  # its hours, or live load
    begun_elsewhere = [*told(at(10.0, 0.5, 20.0)).scored(ended(runs=2), "j", "", "m")]
    assert [each.what for each in begun_elsewhere] == [ETA]
    assert [*JobForecast(is_first_run=False).scored(ended(), "j", "", "m")] == []  # it was paused, or had failed
    assert [each.what for each in told(at(1.0, 0.01, None)).scored(ended(), "j", "", "m")] == [FIRST_ROWS]
