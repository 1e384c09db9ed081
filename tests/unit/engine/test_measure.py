from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sampling import examples
from twoshift.engine.example_rows import given_rows, made_texts
from twoshift.engine.measure import MeasureLimits, hold_out, measure_profile
from twoshift.errors import InvalidInput, OutOfMemory
from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.fit import fit_call_cost
from twoshift.policy.threads import ThreadPlan
from twoshift.ports import Columns, Prepared, RuntimeInfo
from twoshift.types import CallSize

LINE = CallCost.line(0.002, 0.00005)
QUICK = MeasureLimits(1.0)


@dataclass(frozen=True)
class WordRows:
    lengths: NDArray[np.int64]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.lengths), bool)

    @property
    def signature(self) -> None:
        return None

    def slice(self, start: int, stop: int) -> WordRows:
        return WordRows(self.lengths[start:stop])

    def take(self, order: NDArray[np.int64]) -> WordRows:
        return WordRows(self.lengths[order])


class WordDevice:
    """Counts words, and two tokens around each text; takes as long as its curve says, in virtual time."""

    def __init__(
        self, cost: CallCost = LINE, memory_tokens: int = 10**9, cold_s: float = 0.0, pairs: bool = False
    ) -> None:
        self.info = RuntimeInfo("words", "0", "fake", "cpu", "fp32", 256, ("count",))
        self.now_s = 0.0
        self.cost = cost
        self.memory_tokens = memory_tokens
        self.cold_s = cold_s
        self.pairs = pairs
        self.calls: list[CallSize] = []
        self.slow: Callable[[int], float] = lambda number: 1.0

    def clock(self) -> float:
        return self.now_s

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        for number, row in enumerate(rows):
            if isinstance(row, str) == self.pairs:
                raise InvalidInput(f"row {number}", row, "a pair of texts" if self.pairs else "a text")
        texts = [" ".join(row) if self.pairs else row for row in rows]
        return WordRows(np.array([min(256, 2 + len(text.split())) for text in texts], np.int64))

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> WordDevice:
        size = CallSize.of(np.concatenate([part.lengths for part in parts]).tolist())
        if size.tokens > self.memory_tokens:
            raise OutOfMemory(f"{size.tokens} tokens")
        first = size not in self.calls
        self.calls.append(size)
        self.now_s += self.cost.seconds(size) * self.slow(len(self.calls)) + (self.cold_s if first else 0.0)
        return self

    def wait(self) -> Columns:
        return {"count": np.zeros(1)}

    def close(self) -> None:
        raise AssertionError("the caller owns the runtime")


def words(rows: int, tokens: int) -> list[str]:
    return [" ".join(["w"] * (tokens - 2))] * rows


def measured(device: WordDevice, lengths: Sequence[int] = (8, 64), limits: MeasureLimits = QUICK) -> list[Sample]:
    return measure_profile(device, words, lengths, limits, clock=device.clock)


@pytest.mark.slow
def test_the_fit_of_what_was_measured_is_the_devices_own_curve() -> None:
    cost = fit_call_cost(measured(WordDevice())).cost
    assert cost.overhead_s == pytest.approx(LINE.overhead_s, rel=1e-3)
    assert cost.per_token_s == pytest.approx(LINE.per_token_s, rel=1e-3)


@pytest.mark.slow
def test_length_squared_is_found_because_rows_of_several_lengths_are_measured() -> None:
    device = WordDevice(CallCost(0.001, 2e-5, per_square_s=4e-7))
    cost = fit_call_cost(measured(device, (8, 64, 256), MeasureLimits(5.0))).cost
    assert cost.shape == "line+squares"
    assert cost.per_square_s == pytest.approx(4e-7, rel=0.01)


def test_sizes_double_from_one_row_for_each_length() -> None:
    samples = measured(WordDevice())
    for length in (8, 64):
        rows = sorted({s.rows for s in samples if s.longest == length})
        assert rows[0] == 1
        assert all(b == 2 * a for a, b in pairwise(rows))


def test_every_size_is_measured_equally_often_and_at_least_as_often_as_asked() -> None:
    samples = measured(WordDevice())
    counts = {size: sum(s.size == size for s in samples) for size in {s.size for s in samples}}
    assert len(set(counts.values())) == 1
    assert min(counts.values()) >= QUICK.repeats


def test_about_the_time_asked_for_is_spent() -> None:
    for seconds in (0.5, 5.0, 20.0):
        device = WordDevice(CallCost.line(0.002, 0.0001))
        measured(device, limits=MeasureLimits(seconds))
        assert device.now_s < 1.5 * seconds


def test_a_quick_model_is_not_measured_for_longer_than_helps() -> None:
    device = WordDevice(CallCost.line(1e-5, 1e-9))
    samples = measured(device)
    assert device.now_s < 0.1
    assert max(s.rows for s in samples) == QUICK.max_rows


def test_a_slow_model_still_gets_enough_sizes_for_a_line_and_a_check() -> None:
    device = WordDevice(CallCost.line(2.0, 0.01))
    samples = measured(device, (8,))
    assert sorted({s.rows for s in samples}) == [1, 2, 4]
    kept, held = hold_out(samples, 8)
    assert {s.rows for s in held} == {4}
    assert fit_call_cost(kept).cost.seconds(held[0].size) == pytest.approx(held[0].seconds, rel=1e-3)


def test_growing_stops_where_a_call_would_take_too_long() -> None:
    samples = measured(WordDevice(CallCost.line(0.0, 0.0001)))
    assert max(s.seconds for s in samples) <= QUICK.call_s(2)


def test_a_first_call_that_is_slow_only_because_it_is_the_first_does_not_stop_the_growing() -> None:
    cold, warm = WordDevice(cold_s=0.5), WordDevice()
    assert {s.size for s in measured(cold)} == {s.size for s in measured(warm)}
    assert max(s.seconds for s in measured(WordDevice(cold_s=0.5))) < 0.5


def test_growing_stops_where_the_memory_ends() -> None:
    samples = measured(WordDevice(memory_tokens=300))
    assert max(s.tokens for s in samples) == 256
    assert {s.longest for s in samples} == {8, 64}


def test_a_device_that_holds_one_size_only_is_an_error_and_not_a_curve() -> None:
    with pytest.raises(InvalidInput, match="two sizes"):
        measured(WordDevice(memory_tokens=8), (8,))


@pytest.mark.slow
def test_a_slow_spell_hits_many_sizes_a_little_and_the_curve_not_at_all() -> None:
    device = WordDevice()
    device.slow = lambda number: 5.0 if 60 <= number < 75 else 1.0
    samples = measured(device)
    stalled = [s for s in samples if s.seconds > 3 * LINE.seconds(s.size)]
    assert len({s.size for s in stalled}) >= 8
    cost = fit_call_cost(samples).cost
    assert cost.per_token_s == pytest.approx(LINE.per_token_s, rel=0.02)


def test_each_round_has_another_order() -> None:
    device = WordDevice()
    samples = measured(device)
    sizes = len({s.size for s in samples})
    rounds = [[s.size for s in samples[k : k + sizes]] for k in range(0, 4 * sizes, sizes)]
    assert all(set(a) == set(b) and a != b for a, b in pairwise(rounds))


def test_progress_rises_to_one() -> None:
    device, shares = WordDevice(), list[float]()
    measure_profile(device, words, (8,), QUICK, clock=device.clock, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_the_model_raises_is_not_hidden() -> None:
    class Broken(WordDevice):
        def wait(self) -> Columns:
            raise KeyError("x")

    with pytest.raises(KeyError):
        measured(Broken())


class ThreadedDevice(WordDevice):
    """One thread is quick at once; a second one halves what rows take, after a while."""

    thread_candidates: tuple[int, ...] = (1, 2)
    pool_s, change_s = 0.004, 0.5

    def __init__(self) -> None:
        super().__init__()
        self.info = RuntimeInfo("table", "0", "fake", "cpu", "fp32", 1, ("y",), example=[0.0])
        self.threads: ThreadPlan | None = None
        self.used = 0

    def use_threads(self, plan: ThreadPlan) -> None:
        self.threads = plan

    def prepare(self, rows: Sequence[Any]) -> Prepared:
        return WordRows(np.ones(len(rows), np.int64))

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> WordDevice:
        rows = sum(len(part.lengths) for part in parts)
        threads = self.threads.at(rows) if self.threads else 2
        self.now_s += self.seconds(rows, threads) + (self.change_s if threads != self.used else 0.0)
        self.used = threads
        return self

    def seconds(self, rows: int, threads: int) -> float:
        return 0.0001 + rows * 0.0001 / threads + (self.pool_s if threads > 1 else 0.0)


def test_threads_are_chosen_by_size_and_the_samples_are_of_calls_as_chosen() -> None:
    device = ThreadedDevice()
    samples = measure_profile(device, words, (1,), MeasureLimits(5.0), clock=device.clock)
    assert device.threads is not None
    assert (device.threads.at(1), device.threads.at(64), device.threads.at(1024)) == (1, 1, 2)
    for sample in samples:  # and none of them has what a change of the number takes
        assert sample.seconds == pytest.approx(device.seconds(sample.rows, device.threads.at(sample.rows)))


def test_a_number_of_threads_that_the_user_has_said_is_measured_alone() -> None:
    device = ThreadedDevice()
    device.thread_candidates, device.threads = (2,), ThreadPlan.fixed(2)
    samples = measure_profile(device, words, (1,), MeasureLimits(5.0), clock=device.clock)
    assert device.threads == ThreadPlan.fixed(2)
    assert min(s.seconds for s in samples) == pytest.approx(device.seconds(1, 2))


def test_the_largest_call_of_typical_rows_is_held_out() -> None:
    samples = measured(WordDevice())
    kept, held = hold_out(samples, 64)
    assert {(s.rows, s.longest) for s in held} == {(max(s.rows for s in samples if s.longest == 64), 64)}
    assert len(kept) + len(held) == len(samples)
    assert not {s.size for s in kept} & {s.size for s in held}


def test_nothing_is_held_out_of_two_sizes() -> None:
    samples = [Sample(1, 1, 1, 0.1), Sample(2, 2, 1, 0.2)]
    assert hold_out(samples, 1) == (samples, [])


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="seconds"):
        MeasureLimits(seconds)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("length", [8, 64, 256])
def test_texts_are_made_to_the_wanted_length(length: int, pairs: bool) -> None:
    device = WordDevice(pairs=pairs)
    examples = made_texts(device, 64)
    assert examples is not None
    assert examples.lengths == (8, 64, 256)
    rows = examples.make(20, length)
    assert device.prepare(rows).lengths.tolist() == [length] * 20
    assert len(set(rows)) > 1


def test_a_model_that_takes_no_texts_makes_none() -> None:
    device = WordDevice()
    device.info = RuntimeInfo("table", "0", "fake", "cpu", "fp32", 1, ("y",))
    assert made_texts(device, 64) is None


@settings(max_examples=examples(30))
@given(st.lists(st.integers(1, 200), min_size=1, max_size=30), st.integers(1, 100))
def test_given_rows_are_repeated_to_any_number_near_the_wanted_length(lengths: list[int], count: int) -> None:
    device = WordDevice()
    examples = given_rows(device, [" ".join(["w"] * n) for n in lengths])
    assert set(examples.lengths) <= {n + 2 for n in lengths}
    assert examples.row.longest >= examples.row.tokens >= 1
    for length in examples.lengths:
        rows = examples.make(count, length)
        assert len(rows) == count
        assert length in device.prepare(rows).lengths.tolist()


def test_no_rows_given_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="at least one"):
        given_rows(WordDevice(), [])
