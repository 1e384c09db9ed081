"""Predictions of a scaling decision, and their measured results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from twoshift.policy.autoscale import FleetState

__all__ = ["COLD_START", "LOAD", "ScaleScore", "ScaleScores"]

COLD_START, LOAD = "time until added replicas answer", "live load of a replica after scaling"
_SETTLE_S = 60.0  # after the replicas are there, in which rates become those of the new fleet


class ScaleScore(NamedTuple):
    """One predicted figure of one decision."""

    what: str
    unit: str
    predicted: float
    measured: float


@dataclass(slots=True)
class _Open:
    target: int
    decided_s: float
    cold_start_s: float  # 0: nothing was said
    load: float  # that a replica was to have
    there_s: float | None = None  # when the fleet had its new size


class ScaleScores:
    """Scores of one fleet. A new decision replaces one that is not measured yet: its predictions no longer apply."""

    def __init__(self) -> None:
        self._open: _Open | None = None

    def decided(self, state: FleetState, target: int, now_s: float) -> None:
        """The fleet should get another size."""
        replicas = state.replicas
        added = target > replicas.ready + replicas.starting
        if self._open is not None and self._open.target == target:
            return
        cold_start_s = replicas.cold_start_s if added else 0.0
        self._open = _Open(target, now_s, cold_start_s, _load(state, target))

    def seen(self, state: FleetState, now_s: float) -> list[ScaleScore]:
        """The observed fleet; returns the scores that can be computed now."""
        open_, found = self._open, list[ScaleScore]()
        if open_ is None:
            return found
        if open_.there_s is None:
            if state.replicas.ready != open_.target or state.replicas.starting:
                return found
            open_.there_s = now_s
            if open_.cold_start_s > 0:
                found.append(ScaleScore(COLD_START, "s", open_.cold_start_s, now_s - open_.decided_s))
        if now_s - open_.there_s >= _SETTLE_S:
            self._open, now = None, _load(state, open_.target)
            if 0 < open_.load < math.inf and 0 < now < math.inf:
                found.append(ScaleScore(LOAD, "share", open_.load, now))
        return found


def _load(state: FleetState, replicas: int) -> float:
    """Load relative to the capacity of one replica; 0 if unknown."""
    capacity = replicas * state.replicas.replica_rows_per_s
    return state.replicas.live_rows_per_s / capacity if capacity else 0.0
