"""Number of threads of a call by its rows, chosen from measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from twoshift.errors import InvalidInput, Malformed

__all__ = ["ThreadPlan", "ThreadStep", "choose_threads", "thread_candidates"]

_CAUTIOUS = 0.9  # quantile of the calls: what a thread pool costs shows in the slow ones
_LATE_S = 0.002  # a thread of a call may have to wait for a busy core: about one slice of the scheduler's
_GAIN = 1.1  # more threads take cores from the rest of the process: they have to be worth it
_MANY = 8  # from so many threads on, a number between one and all is tried as well


class ThreadStep(NamedTuple):
    """Calls with at least this many rows use this many threads."""

    from_rows: int
    threads: int


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """Threads by rows: both increase from step to step, and the first step begins with one row."""

    steps: tuple[ThreadStep, ...]

    def __post_init__(self) -> None:
        rising = all(a.from_rows < b.from_rows and a.threads < b.threads for a, b in pairwise(self.steps))
        if not self.steps or self.steps[0].from_rows != 1 or self.steps[0].threads < 1 or not rising:
            accepted = "steps that start at 1 row, of which each further step has more rows and threads than the last"
            raise InvalidInput("threads", self.steps, accepted)

    @classmethod
    def fixed(cls, threads: int) -> ThreadPlan:
        """The same number of threads for every call."""
        return cls((ThreadStep(1, threads),))

    def at(self, rows: int) -> int:
        """Number of threads of a call with this many rows."""
        for from_rows, threads in reversed(self.steps):
            if rows >= from_rows:
                return threads
        return self.steps[0].threads

    def __str__(self) -> str:
        """For people: `1 thread below 512 rows, then 2`."""
        numbers = [f"{step.threads}" for step in self.steps]
        numbers[0] += " thread" if numbers[0] == "1" else " threads"
        bounds = [f" below {step.from_rows:,} rows, then " for step in self.steps[1:]]
        return "".join(number + bound for number, bound in zip(numbers, [*bounds, ""], strict=True))


def thread_candidates(most: int) -> tuple[int, ...]:
    """Numbers of threads to measure, up to this maximum: one, all, and some between them if there are many."""
    middle = {round(math.sqrt(most))} if most >= _MANY else set[int]()
    return tuple(sorted({1, most} | middle))


def choose_threads(
    seconds: Mapping[ThreadStep, Sequence[float]], quantile: float = _CAUTIOUS, late_s: float = _LATE_S
) -> ThreadPlan:
    """The plan with which calls of all measured sizes take the least; `seconds` has those of each size and number.

    More threads have to save a tenth, and `late_s`: on a busy machine a thread that comes late costs that much.
    One plan for all sizes, because one stalled size must not look like a step.
    """
    counts = sorted({step.threads for step in seconds})
    sizes = sorted({step.from_rows for step in seconds})
    # For each number, where the last size uses it: the least sum over the sizes so far (of logarithms, so that a small
    # size counts as much as a large one), and the numbers of those sizes
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * len(counts)
    for rows in sizes:
        taken_s = [_at(seconds.get(ThreadStep(rows, n), ()), quantile) for n in counts]
        costs = [math.log(_GAIN**place * each_s + place * late_s) for place, each_s in enumerate(taken_s)]
        best = [
            min((spent + cost, (*chosen, counts[place])) for spent, chosen in best[: place + 1])
            for place, cost in enumerate(costs)
        ]
    return _plan(sizes, min(best)[1])


def _at(taken_s: Sequence[float], quantile: float) -> float:
    """Cautious time of a call; infinite if it was not measured."""
    return max(sorted(taken_s)[math.ceil(quantile * (len(taken_s) - 1))], 1e-9) if taken_s else math.inf


def _plan(sizes: Sequence[int], chosen: Sequence[int]) -> ThreadPlan:
    steps: list[ThreadStep] = []
    for rows, threads in zip(sizes, chosen, strict=True):
        if not steps or threads > steps[-1].threads:
            steps.append(ThreadStep(rows if steps else 1, threads))
    if not steps:
        raise Malformed("threads", "at least one measured call, from which the number of threads is chosen")
    return ThreadPlan(tuple(steps))
