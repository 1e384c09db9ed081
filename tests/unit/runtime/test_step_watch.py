"""Steps of vLLM that begin before others end: which tokens each had, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twoshift.runtime.llm.step_watch import StepWatch


@dataclass
class Decided:
    num_scheduled_tokens: dict[str, int]
    preempted_req_ids: set[str] | None = None


@dataclass
class Told:
    request_id: str


@dataclass
class Outputs:
    outputs: list[Told]


@dataclass
class Scheduler:
    """Decides what it is given."""

    next: list[Decided] = field(default_factory=list)

    def schedule(self) -> Decided:
        return self.next.pop(0)

    def update_from_output(self, decided: Decided) -> dict[int, Outputs]:
        return {0: Outputs([Told(own) for own in decided.num_scheduled_tokens])}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def watched(*steps: dict[str, int]) -> tuple[Any, StepWatch, Clock]:
    scheduler, clock = Scheduler([Decided(each) for each in steps]), Clock()
    return scheduler, StepWatch(scheduler, {"a": 1, "b": 2}, clock), clock


def test_a_step_takes_from_the_end_of_the_one_before_it_where_it_had_begun_by_then() -> None:
    scheduler, watch, clock = watched({"a": 5}, {"a": 1, "b": 7})
    first = scheduler.schedule()
    clock.now_s = 1.0
    second = scheduler.schedule()
    assert watch.in_flight == 2
    assert watch.taken()[0].tokens == {}
    clock.now_s = 4.0
    scheduler.update_from_output(first)
    ended = watch.taken()[0]
    assert (ended.tokens, ended.seconds) == ({1: 5}, 4.0)
    clock.now_s = 6.5
    scheduler.update_from_output(second)
    ended = watch.taken()[0]
    assert (ended.tokens, ended.seconds) == ({1: 1, 2: 7}, 2.5)
    assert not watch.in_flight


def test_a_step_after_a_pause_takes_from_its_own_beginning() -> None:
    scheduler, watch, clock = watched({"a": 5}, {"a": 1})
    scheduler.update_from_output(scheduler.schedule())
    clock.now_s = 100.0
    step = scheduler.schedule()
    clock.now_s = 101.0
    scheduler.update_from_output(step)
    assert watch.taken()[0].seconds == 1.0


def test_who_leaves_before_the_step_ends_is_counted_in_it_and_an_empty_one_took_no_time() -> None:
    scheduler, clock = Scheduler([Decided({"a": 5}, {"b"}), Decided({})]), Clock()
    keys = {"a": 1}
    watch = StepWatch(scheduler, keys, clock)
    step = scheduler.schedule()
    del keys["a"]
    scheduler.update_from_output(step)
    ended, preempted = watch.taken()
    assert (ended.tokens, preempted) == ({1: 5}, 1)
    scheduler.update_from_output(scheduler.schedule())
    assert watch.taken()[0].seconds is None


def test_what_comes_for_quiet_sequences_is_taken_from_vllms_own_processing() -> None:
    scheduler, watch, _ = watched({"a": 1, "b": 1})
    watch.quiet.add("b")
    outputs = scheduler.update_from_output(scheduler.schedule())
    assert [each.request_id for each in outputs[0].outputs] == ["a"]
    assert [each.request_id for each in watch.taken()[0].quiet] == ["b"]
