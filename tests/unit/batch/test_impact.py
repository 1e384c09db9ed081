"""What live requests noticed of a job, over one run and over several."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from twoshift.batch.impact import LiveImpact, Percentiles


def test_one_run_is_told_exactly() -> None:
    seen = [k / 1000 for k in range(1, 101)]
    found = Percentiles.of(seen)
    assert found is not None
    assert (found.requests, found.p50_s, found.p99_s) == (100, 0.051, 0.1)
    assert Percentiles.over([None, found]) == found


def test_several_runs_are_told_together_to_a_percent() -> None:
    random = np.random.default_rng(1)
    runs = [random.lognormal(-5 + 2 * k, 0.5, 200 * (k + 1)).tolist() for k in range(3)]
    kept = [msgspec.json.decode(msgspec.json.encode(Percentiles.of(run)), type=Percentiles) for run in runs]
    found, exact = Percentiles.over(kept), Percentiles.of([each for run in runs for each in run])
    assert found is not None
    assert exact is not None
    assert found.requests == 1200
    assert found.p50_s == pytest.approx(exact.p50_s, rel=0.01)
    assert found.p99_s == pytest.approx(exact.p99_s, rel=0.01)
    assert Percentiles.over([Percentiles.over(kept[:2]), kept[2]]) == found


def test_the_slowdown_is_of_medians_and_needs_both() -> None:
    beside, alone = Percentiles.of([0.02, 0.03, 0.04]), Percentiles.of([0.01, 0.012, 0.05])
    assert LiveImpact(beside, alone).slowdown == pytest.approx(2.5)
    assert LiveImpact(beside, None).slowdown is None
    assert LiveImpact(None, alone).slowdown is None


def test_runs_without_live_requests_change_nothing() -> None:
    beside = Percentiles.of([0.0, 0.5])
    assert LiveImpact.over([]) is None
    assert LiveImpact.over([None, LiveImpact(beside, None), LiveImpact(None, None)]) == LiveImpact(beside, None)
