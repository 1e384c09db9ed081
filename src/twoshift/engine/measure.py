"""What calls of a model cost here, measured in seconds of wall time: the samples that a profile is fitted to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twoshift.errors import InvalidInput, OutOfMemory
from twoshift.policy.cost import Sample
from twoshift.policy.threads import ThreadPlan, ThreadStep, choose_threads
from twoshift.ports import Prepared, Runtime, ThreadedRuntime
from twoshift.types import CallSize

__all__ = ["MakeRows", "MeasureLimits", "fastest_calls", "hold_out", "measure_profile"]

MakeRows = Callable[[int, int], Sequence[Any]]  # (rows, tokens a row) -> rows as a user has them

_WARM_UP_CALLS = 3
_LOOKS = 5  # of which the fastest counts
_FEWEST_ROWS = 4  # of the largest call, however slow: two sizes for a line, and one to hold it against
_MOST_ROUNDS = 40  # a quick model is known well enough after these
_PATIENCE = 3.0  # times the budget, after which a slow model gets fewer repeats
_CHOICE_ROUNDS = 20  # with each number of threads: enough to see what their slow calls take
_FEWEST_ROUNDS = 2  # however slow
_CHOICE_SHARE = 0.3  # of the time, for the choice of threads
_GOLDEN = 0.618034  # steps of this share of a round visit its sizes evenly and in no simple order


@dataclass(frozen=True, slots=True)
class MeasureLimits:
    """How long to measure and how large calls may become."""

    seconds: float = 5.0
    repeats: int = 3  # of each size at least
    max_rows: int = 1024
    max_tokens: int = 1 << 17

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 3600:
            raise InvalidInput("seconds", self.seconds, "a number of seconds above 0, at most 3600")
        if self.repeats < 1 or self.max_rows < 1 or self.max_tokens < 1:
            raise InvalidInput("repeats, max_rows, max_tokens", self, "numbers of at least 1")

    def call_s(self, lengths: int) -> float:
        """The longest call worth growing to: sizes double, so all calls of one length take about two of it."""
        return self.seconds / (2 * lengths * (self.repeats + 2))


@dataclass(frozen=True, slots=True)
class _Probe:
    """A call that is made again and again."""

    rows: Prepared
    size: CallSize


def measure_profile(
    runtime: Runtime,
    make_rows: MakeRows,
    lengths: Sequence[int] = (1,),
    limits: MeasureLimits | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[float], None] | None = None,
) -> list[Sample]:
    """Samples of calls of 1, 2, 4 ... rows, of rows of each length; whoever calls this owns the runtime.

    Where a call may use several threads, their number is chosen by size first: the samples are of calls as chosen.

    Raises InvalidInput where fewer than two sizes fit the device, and whatever the model raises.
    """
    chosen = limits or MeasureLimits()
    bench = _Bench(runtime, clock, chosen, progress or _ignore)
    probes = bench.grow(make_rows, sorted(set(lengths)))
    if len(probes) < 2:
        accepted = "calls of at least two sizes: larger calls ran out of memory, or the limits allow only one size"
        raise InvalidInput("model", runtime.info.model, accepted)
    if (threaded := _choosing(runtime)) is not None:
        threaded.use_threads(choose_threads(bench.time_threads(threaded, probes, _CHOICE_SHARE * chosen.seconds)))
    samples = bench.measure(probes)
    bench.report(1.0)
    return samples


def fastest_calls(
    runtime: Runtime,
    parts: Sequence[Sequence[Any]],
    repeats: int = _LOOKS,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[tuple[CallSize, float]]:
    """The fastest of a few calls of each part's rows: what the device can do at this moment."""
    bench = _Bench(runtime, clock, MeasureLimits(), _ignore)
    found: list[tuple[CallSize, float]] = []
    for rows in parts:
        probe = bench.probe(rows)
        seen = [seconds for _ in range(repeats) if (seconds := bench.run(probe)) is not None]
        if seen:
            found.append((probe.size, max(min(seen), 1e-9)))
    return found


def _choosing(runtime: Runtime) -> ThreadedRuntime | None:
    """The runtime, if its calls can use one number of threads or another."""
    return runtime if isinstance(runtime, ThreadedRuntime) and len(runtime.thread_candidates) > 1 else None


def hold_out(samples: Sequence[Sample], row_tokens: float) -> tuple[list[Sample], list[Sample]]:
    """(what to fit, what to predict): the largest calls of about such rows are kept from the fit.

    Nothing is held out where fewer than two sizes would be left.
    """
    off = {s.size: abs(s.tokens / s.rows - row_tokens) for s in samples}
    near = min(off.values()) + row_tokens / 4
    largest = max((size for size in off if off[size] <= near), key=lambda size: (size.rows, size.tokens))
    held = [s for s in samples if s.size == largest]
    kept = [s for s in samples if s.size != largest]
    return (kept, held) if len({s.size for s in kept}) >= 2 else (list(samples), [])


class _Bench:
    """Runs calls on a runtime that nothing else uses, and times them."""

    def __init__(
        self, runtime: Runtime, clock: Callable[[], float], limits: MeasureLimits, report: Callable[[float], None]
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._limits = limits
        self.report = report
        self._began_s = clock()
        self._threads: int | None = None  # of the last call, where its size decides

    def grow(self, make_rows: MakeRows, lengths: list[int]) -> list[_Probe]:
        """Calls of doubling size of each length, until one is too long or does not fit; each was run at least once."""
        bound_s = self._limits.call_s(len(lengths))
        fewest = _FEWEST_ROWS if len(lengths) == 1 else _FEWEST_ROWS // 2  # another length is another size, too
        probes: list[_Probe] = []
        growing, rows = list(lengths), 1
        while growing and rows <= self._limits.max_rows:
            for length in tuple(growing):
                probe = self.probe(make_rows(rows, length))
                elapsed_s = self._first_s(probe, bound_s, cold=not probes)
                if elapsed_s is not None:
                    probes.append(probe)
                slow = elapsed_s is not None and 2 * elapsed_s > bound_s and rows >= fewest
                if elapsed_s is None or slow or 2 * probe.size.tokens > self._limits.max_tokens:
                    growing.remove(length)
                self._report()
            rows *= 2
        return probes

    def time_threads(
        self, runtime: ThreadedRuntime, probes: list[_Probe], seconds: float
    ) -> dict[ThreadStep, list[float]]:
        """What calls take, in rounds over all sizes with each number of threads by turns."""
        found, until_s = dict[ThreadStep, list[float]](), self._clock() + seconds
        for turn in range(_CHOICE_ROUNDS):
            if turn >= _FEWEST_ROUNDS and self._clock() >= until_s:
                break
            for threads in runtime.thread_candidates[:: -1 if turn % 2 else 1]:
                runtime.use_threads(ThreadPlan.fixed(threads))
                self._time_round(_shuffled(probes, turn), threads, found)
            self._report()
        return found

    def _time_round(self, probes: list[_Probe], threads: int, seconds: dict[ThreadStep, list[float]]) -> None:
        for probe in probes:
            self._settle(probe)
            if (elapsed_s := self.run(probe)) is not None:
                seconds.setdefault(ThreadStep(probe.size.rows, threads), []).append(elapsed_s)

    def _settle(self, probe: _Probe) -> None:
        """A call that does not count, where the number of threads changes: the change itself takes its time."""
        plan = self._runtime.threads if isinstance(self._runtime, ThreadedRuntime) else None
        threads = None if plan is None else plan.at(probe.size.rows)
        if threads != self._threads:
            self.run(probe)
        self._threads = threads

    def measure(self, probes: list[_Probe]) -> list[Sample]:
        """Rounds over all sizes, each in another order, so that a slow spell of the machine hits many sizes a little.

        As many as the time allows, at least `repeats`; fewer only where even those would take far longer than asked.
        """
        samples: list[Sample] = []
        for turn in range(_MOST_ROUNDS):
            spent_s = self._clock() - self._began_s
            enough = turn >= self._limits.repeats and spent_s >= self._limits.seconds
            if turn and (enough or spent_s >= _PATIENCE * self._limits.seconds):
                break
            for probe in _shuffled(probes, turn):
                self._settle(probe)
                if (elapsed_s := self.run(probe)) is None:
                    continue  # memory that was there a moment ago
                size = probe.size
                samples.append(Sample(size.rows, size.tokens, size.longest, max(elapsed_s, 1e-9), size.squares))
                self._report()
        return samples

    def probe(self, rows: Sequence[Any]) -> _Probe:
        """A call of these rows."""
        prepared = self._runtime.prepare(rows)
        return _Probe(prepared, CallSize.of(prepared.lengths.tolist()))

    def _first_s(self, probe: _Probe, bound_s: float, cold: bool) -> float | None:
        """How long it takes once what happens only the first time has happened; None where it does not fit."""
        for _ in range(_WARM_UP_CALLS if cold else 0):
            self.run(probe)
        elapsed_s = self.run(probe)
        if elapsed_s is not None and 2 * elapsed_s > bound_s:
            again_s = self.run(probe)
            return None if again_s is None else min(elapsed_s, again_s)
        return elapsed_s

    def run(self, probe: _Probe) -> float | None:
        """How long it takes; None where it does not fit."""
        began_s = self._clock()
        try:
            self._runtime.launch([probe.rows]).wait()
        except OutOfMemory:
            return None
        return self._clock() - began_s

    def _report(self) -> None:
        self.report(min(0.99, (self._clock() - self._began_s) / self._limits.seconds))


def _shuffled(probes: list[_Probe], turn: int) -> list[_Probe]:
    places = sorted(range(len(probes)), key=lambda k: ((k + 1) * (turn + 1) * _GOLDEN) % 1.0)
    return [probes[k] for k in places]


def _ignore(share: float) -> None:
    pass
