"""The control loop of a fleet: observe, decide, act."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from twoshift.errors import TwoshiftError
from twoshift.fleet.actuator import Actuator
from twoshift.fleet.scale_log import ScaleLog
from twoshift.policy.autoscale import AutoscalePolicy, FleetScale, FleetState, Signal
from twoshift.policy.scale_journal import scale_entry, scale_header
from twoshift.policy.scale_scores import ScaleScore, ScaleScores

__all__ = ["Scaler"]

_logger = logging.getLogger("twoshift.scale")


class Scaler:
    """Sizes a fleet, a step at a time; `start` takes the steps in a thread."""

    def __init__(
        self,
        policy: AutoscalePolicy,
        observe: Callable[[float], FleetState],
        actuator: Actuator,
        log: ScaleLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        model: str = "",  # for people
    ) -> None:
        self._policy, self._observe, self._actuator, self._log, self._clock = policy, observe, actuator, log, clock
        self._of = f"{model}: " if model else ""
        self.decisions: Counter[tuple[str, Signal]] = Counter()  # by direction and what they followed from
        self.state: FleetState | None = None  # as it was last seen
        self._last: FleetScale | None = None  # what was last decided: the same is not said again
        self._logged = 0
        self._scores = ScaleScores()
        self.scored: Callable[[ScaleScore], None] = lambda _score: None  # told what came of decisions
        self._stop, self._look = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def step(self) -> FleetScale:
        """Look once and do what follows."""
        now_s = round(self._clock(), 3)
        state = self._observe(now_s)
        self._begin_log()
        scale = self._policy.decide(state, now_s)
        self.state = state
        self._write(now_s, state, scale)
        for score in self._scores.seen(state, now_s):
            self.scored(score)
        change = scale.target - state.replicas.ready - state.replicas.starting
        self._tell(change, scale)
        if change:
            self._scores.decided(state, scale.target, now_s)
            self._actuator.scale_to(scale.target)
        return scale

    def start(self, every_s: float) -> None:
        """Until it is closed."""
        self._thread = threading.Thread(target=self._run, args=(every_s,), name="twoshift-scaler", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Somebody waits for a replica: take the next step at once."""
        self._look.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """No more steps; the fleet stays as it is."""
        self._stop.set()
        self._look.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._log is not None and (self._thread is None or not self._thread.is_alive()):
            self._log.close()

    def _run(self, every_s: float) -> None:
        while not self._stop.is_set():
            self._look.wait(every_s)
            self._look.clear()
            if self._stop.is_set():
                return
            try:
                self.step()
            except TwoshiftError as error:
                _logger.warning("scaling failed: %s", error)
            except Exception:  # it must outlive what it looks at
                _logger.exception("scaling failed")

    def _begin_log(self) -> None:
        """Before it is decided: the header says what the policy remembers."""
        if self._log is not None and self._log.needs_header:
            self._log.begin(scale_header(self._policy))
            self._logged = 0

    def _write(self, now_s: float, state: FleetState, scale: FleetScale) -> None:
        if self._log is not None:
            self._logged += 1
            self._log.add(scale_entry(self._logged, self._log.now(), now_s, state, scale))

    def _tell(self, change: int, scale: FleetScale) -> None:
        direction = "up" if change > 0 else "down" if change < 0 else "hold"
        for_jobs = change > 0 >= scale.replicas.change
        signal = scale.workers.signal if for_jobs else scale.replicas.signal
        self.decisions[direction, signal] += 1
        if change and (self._last is None or self._last.target != scale.target):
            why = scale.workers.reason if for_jobs else scale.replicas.reason
            _logger.warning("%sscaling replicas to %d: %s", self._of, scale.target, why)
        if _borrows(scale) and not _borrows(self._last):
            _logger.warning(
                "%sno replica is added, because holding back batch rows frees enough capacity: %s",
                self._of,
                scale.replicas.reason,
            )
        self._last = scale


def _borrows(scale: FleetScale | None) -> bool:
    return scale is not None and scale.replicas.signal is Signal.BORROW
