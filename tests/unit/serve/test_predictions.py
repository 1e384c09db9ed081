"""Predictions on their way to the database, and those of promoted versions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from twoshift.errors import Disabled, TryLater
from twoshift.prediction_ports import Prediction
from twoshift.serve.counts import HistogramCounts
from twoshift.serve.deployments import Deployment
from twoshift.serve.prediction_log import NoPredictions, PredictionLog
from twoshift.serve.promotion_scores import LATENCY, PromotionScores

ONE = Prediction("job", "m", "eta", "s", 1.0, 2.0, 3.0)


class Kept:
    def __init__(self) -> None:
        self.rows: list[Prediction] = []
        self.is_silent = False

    def add(self, scored: Sequence[Prediction]) -> None:
        if self.is_silent:
            raise TryLater("silent", 1.0)
        self.rows += scored

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]:
        return self.rows[:limit]


def test_nobody_waits_for_the_database_and_nothing_is_lost_or_doubled() -> None:
    store = Kept()
    log = PredictionLog(store)
    store.is_silent = True
    log.add(ONE)
    log.add(replace(ONE, measured=math.inf))  # says nothing
    with pytest.raises(TryLater):
        log.write()
    log.add(replace(ONE, measured=4.0))
    store.is_silent = False
    log.write()
    log.write()
    assert [each.measured for each in log.list(10)] == [2.0, 4.0]


def test_the_end_of_a_server_writes_what_is_left() -> None:
    store = Kept()
    log = PredictionLog(store)
    log.start()
    log.add(ONE)
    log.close()
    assert store.rows == [ONE]
    nothing = NoPredictions("there is no database")
    nothing.add(ONE)
    with pytest.raises(Disabled, match="no database"):
        nothing.list(1)


def test_a_promoted_version_is_held_against_what_its_candidate_took() -> None:
    deployment, scores = Deployment("m"), PromotionScores()
    for _ in range(30):
        deployment.metrics.replied(200, 9.0, None)  # of the version before
    scores.promoted(deployment, "ro-1", HistogramCounts((10, 15), 2.5), 1000.0)
    for _ in range(40):
        deployment.metrics.replied(200, 0.2, None)
    assert [*scores.due(1200.0)] == []
    (found,) = scores.due(1300.0)
    assert (found.what, found.subject, found.model) == (LATENCY, "ro-1", "m")
    assert (found.predicted, found.measured) == (pytest.approx(0.1), pytest.approx(0.2))
    assert [*scores.due(9999.0)] == []


def test_few_requests_say_nothing_and_another_promotion_ends_the_first() -> None:
    deployment, scores = Deployment("m"), PromotionScores()
    scores.promoted(deployment, "ro-1", HistogramCounts((19,), 1.0), 0.0)
    assert [*scores.due(999.0)] == []
    scores.promoted(deployment, "ro-2", HistogramCounts((20,), 1.0), 0.0)
    scores.promoted(deployment, "ro-3", HistogramCounts((20,), 1.0), 100.0)
    for _ in range(20):
        deployment.metrics.replied(200, 0.1, None)
    assert [each.subject for each in scores.due(999.0)] == ["ro-3"]
