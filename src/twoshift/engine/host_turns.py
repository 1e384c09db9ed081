"""Background work takes turns with a loop that answers live requests in the same interpreter."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from twoshift.engine.blocks import BlockTaker
from twoshift.engine.host_time import HostTime
from twoshift.policy.host_turns import HostTurnsPolicy
from twoshift.policy.lane_values import LaneLimits

__all__ = ["HostTurns", "host_turns_beside", "host_turns_of", "owed_share_of", "ran_s"]

_T = TypeVar("_T")


class HostTurns:
    """One piece of work at a time, and a rest after it; of all jobs of an engine."""

    def __init__(
        self,
        loop_s: Callable[[], float],
        live_slowdown: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        worked_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`loop_s`: what the loop has had of the processor. `live_slowdown` as the policy has it."""
        self._policy, self._turn = HostTurnsPolicy(live_slowdown), threading.Lock()
        self._loop_s, self._clock, self._worked_s, self._sleep = loop_s, clock, worked_s, sleep

    def take(self, work: Callable[..., _T], *given: Any, owed_share: float = 0.0) -> _T:
        """What it gives, in its turn; it has at least that share of a core."""
        with self._turn:
            began_s = self._worked_s()
            try:
                return work(*given)
            finally:
                self._policy.worked(self._worked_s() - began_s)
                if rest_s := self._policy.rest_s(self._clock(), self._loop_s(), owed_share):
                    self._sleep(rest_s)

    def also(self, seconds: float) -> None:
        """Work of this interpreter that did not wait for its turn; any thread may say so."""
        self._policy.worked(seconds)


def host_turns_beside(thread: int, limits: LaneLimits, front: int | None = None) -> HostTurns | None:
    """Beside the loop of that thread, and of the process that sends it requests and has the same cores.

    None where the system does not tell a thread's time.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    clock = time.pthread_getcpuclockid(thread)
    times = Path(f"/proc/{front}/schedstat")  # of its first thread, which has its loop
    if front is None or not times.exists():
        return HostTurns(lambda: _had_s(clock), limits.live_slowdown)
    cores = len(os.sched_getaffinity(0))
    return HostTurns(lambda: _had_s(clock) + ran_s(times) / cores, limits.live_slowdown)


def _had_s(clock: int) -> float:
    try:
        return time.clock_gettime(clock)
    except OSError:  # the loop's thread has ended, and nobody is answered any more
        return 0.0


def ran_s(times: Path) -> float:
    """What a thread has had of the processor, by its file."""
    try:
        return int(times.read_bytes().split(maxsplit=1)[0]) / 1e9
    except (OSError, ValueError, IndexError):  # it is gone, and we are in a moment
        return 0.0


@runtime_checkable
class _Served(Protocol):
    """An engine that may answer live requests, too."""

    host_time: HostTime

    @property
    def limits(self) -> LaneLimits: ...


def host_turns_of(engine: BlockTaker) -> HostTurns | None:
    """Of an engine whose live requests are answered in this process; None where there are none."""
    turns = engine.host_time.turns if isinstance(engine, _Served) else None
    return turns if isinstance(turns, HostTurns) else None


def owed_share_of(engine: BlockTaker) -> float:
    """Of a core, that work has which would miss its deadline; as of the device."""
    return engine.limits.min_share if isinstance(engine, _Served) else 0.0
