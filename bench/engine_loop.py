"""The engine's own time, over a device that takes none: 10 million background rows and live rows beside them.

Each figure is what the loop adds for a call, a background row and a live row, as a share of its limit (50, 2 and 20
microseconds), and the memory that it grows by. The device is a fake that answers at once, so all the time is ours.
Other guests of a shared machine only ever add to it: each time is the least of five.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.ports import Columns, Prepared, RuntimeInfo

BACKGROUND_ROWS, BLOCK_ROWS = 10_000_000, 8192
LIVE_ROWS = 100_000
TURNS = 5


@dataclass(frozen=True, slots=True)
class Nothing:
    """Rows that hold nothing."""

    lengths: NDArray[np.int64]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.lengths), bool)

    @property
    def signature(self) -> None:
        return None

    def slice(self, start: int, stop: int) -> Nothing:
        return Nothing(self.lengths[start:stop])

    def take(self, order: NDArray[np.int64]) -> Nothing:
        return Nothing(self.lengths[order])


class Instant:
    """A device that answers at once."""

    info = RuntimeInfo("instant", "0", "fake", "cpu", "fp32", 1, ("answer",))

    def __init__(self) -> None:
        self._zeros = np.zeros(BLOCK_ROWS, np.float32)
        self._answer: Columns = {}

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        return Nothing(np.ones(len(rows), np.int64))

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Instant:
        self._answer = {"answer": self._zeros[: sum(len(part.lengths) for part in parts)]}
        return self

    def wait(self) -> Columns:
        return self._answer

    def close(self) -> None:
        pass


def engine(call_rows: int) -> Engine:
    """Turned by hand, so that no time is spent on waking a thread."""
    return Engine(Instant(), CallCost.line(1e-6, 1e-9), LaneLimits(call_rows, slo_s=1e6), start=False)


def background(rows: int, call_rows: int) -> tuple[float, int]:
    """The loop's seconds for so many background rows, and its calls."""
    loop = engine(call_rows)
    block = Nothing(np.ones(BLOCK_ROWS, np.int64))
    began_s = time.process_time()
    for _ in range(rows // BLOCK_ROWS):
        future = loop.submit_block(block)
        while not future.done():
            loop.step(0.0)
    return time.process_time() - began_s, loop.stats().calls


def live(together: int) -> tuple[float, int]:
    """The loop's seconds for live rows that come so many together, and its calls."""
    loop = engine(512)
    rows = Nothing(np.ones(together, np.int64))
    began_s = time.process_time()
    for _ in range(LIVE_ROWS // together):
        futures = loop.submit(rows, loop.now_s() + 1e6)
        while not futures[-1].done():
            loop.step(0.0)
    return time.process_time() - began_s, loop.stats().calls


def least(run: Callable[[], tuple[float, int]]) -> tuple[float, int]:
    """The shortest of some runs."""
    return min(run() for _ in range(TURNS))


def split(rows: int, few: tuple[float, int], many: tuple[float, int]) -> tuple[float, float]:
    """Seconds a call and a row, from the same rows in few calls and in many."""
    call_s = (many[0] - few[0]) / (many[1] - few[1])
    return call_s, (few[0] - few[1] * call_s) / rows


def main() -> int:
    """Print the shares; 1 where a limit is passed."""
    small = BACKGROUND_ROWS // 10
    call_s, row_s = split(small, least(lambda: background(small, 512)), least(lambda: background(small, 32)))
    _, live_s = split(LIVE_ROWS, least(lambda: live(64)), least(lambda: live(4)))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole_s, _ = background(BACKGROUND_ROWS, 512)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    figures = (("a call", call_s, 50e-6), ("a background row", row_s, 2e-6), ("a live row", live_s, 20e-6))
    for name, seconds, limit_s in figures:
        print(f"{name}: {1e6 * seconds:.2f} us, {seconds / limit_s:.2f} of {1e6 * limit_s:.0f} us")
    print(f"{BACKGROUND_ROWS:,} background rows: {whole_s:.1f} s, memory {grown_kib / 1024:+.1f} MiB")
    return int(any(seconds > limit_s for _, seconds, limit_s in figures))


if __name__ == "__main__":
    raise SystemExit(main())
