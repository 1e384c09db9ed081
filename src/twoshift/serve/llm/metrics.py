"""What is counted of sequences: how long they took to their first token, for each more, and in all."""

from __future__ import annotations

import threading
from collections import deque

from twoshift.engine.llm import FinishedSequence
from twoshift.serve.metrics import Histogram
from twoshift.types import Lane

__all__ = ["LlmMetrics"]

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_TPOT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_ALL_S = (0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 240.0, 480.0)
_MANY = 256  # that go into the histograms together


class LlmMetrics:
    """Of one model, by lane. Any thread."""

    def __init__(self) -> None:
        self.objective: tuple[float, float] | None = None  # seconds to the first token, and for each after it
        self._lock = threading.Lock()
        self._new: deque[FinishedSequence] = deque()
        self._ttft = {lane: Histogram(_TTFT_S) for lane in Lane}
        self._tpot = {lane: Histogram(_TPOT_S) for lane in Lane}
        self._all = {lane: Histogram(_ALL_S) for lane in Lane}
        self._reasons: dict[Lane, dict[str, int]] = {lane: {} for lane in Lane}
        self._within_slo = self._outside_slo = 0  # live sequences

    def finished(self, sequence: FinishedSequence) -> None:
        """A sequence that has its whole answer."""
        with self._lock:
            self._new.append(sequence)
            if len(self._new) >= _MANY:
                self._add()

    def histograms(self) -> dict[str, dict[Lane, Histogram]]:
        """To the first token, for each token after it, and in all."""
        with self._lock:
            self._add()
            return {"ttft": self._ttft, "tpot": self._tpot, "all": self._all}

    def reasons(self) -> dict[Lane, dict[str, int]]:
        """How many have ended for which reason."""
        with self._lock:
            self._add()
            return {lane: dict(each) for lane, each in self._reasons.items()}

    def slo_counts(self) -> tuple[int, int]:
        """Live sequences within the objective, and outside it."""
        with self._lock:
            self._add()
            return self._within_slo, self._outside_slo

    def _add(self) -> None:
        found, self._new = self._new, deque()
        for lane in Lane:
            those = [each for each in found if each.lane is lane]
            if not those:
                continue
            self._ttft[lane].add([each.ttft_s for each in those])
            self._tpot[lane].add([each.tpot_s for each in those if each.tpot_s is not None])
            self._all[lane].add([each.seconds for each in those])
            if lane is Lane.ONLINE and self.objective is not None:
                kept = sum(_is_within(each, *self.objective) for each in those)
                self._within_slo += kept
                self._outside_slo += len(those) - kept
            for each in those:
                reasons = self._reasons[lane]
                reasons[str(each.finish)] = reasons.get(str(each.finish), 0) + 1


def _is_within(each: FinishedSequence, ttft_s: float, tpot_s: float) -> bool:
    return each.ttft_s <= ttft_s and (each.tpot_s is None or each.tpot_s <= tpot_s)
