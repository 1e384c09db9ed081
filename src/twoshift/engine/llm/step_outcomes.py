"""What a step has brought: counted, and told to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from twoshift.engine.llm.llm_counters import LlmCounters
from twoshift.engine.llm.sequence_table import SequenceTable
from twoshift.engine.llm.sequences import Background, Live, answer_columns
from twoshift.engine.llm.stats import FinishedSequence
from twoshift.engine.llm.stream import Wake
from twoshift.generation import Delta, FinishReason, RowDetails, joined_calls
from twoshift.llm_ports import Emitted, LlmRuntime, Step
from twoshift.types import Lane

__all__ = ["Settle", "StepOutcomes"]

Settle = Callable[[], Wake | None]  # somebody is told, and may have to be woken


class StepOutcomes:
    """In the thread of an engine, whose lock guards what it shares with it."""

    def __init__(
        self,
        runtime: LlmRuntime,
        table: SequenceTable,
        counters: LlmCounters,
        lock: AbstractContextManager[object],
        finished: Callable[[FinishedSequence], None],
    ) -> None:
        """`finished` is told of each sequence that has its whole answer, outside the lock."""
        self._runtime, self._table, self._counters = runtime, table, counters
        self._lock, self._finished = lock, finished

    def took(self, step: Step, inside: dict[int, Live | Background], now_s: float) -> list[Settle]:
        """Account for a step, under the lock; what is to be told outside of it."""
        self._counters.stepped(step, inside, self._table.inside)
        settle: list[Settle] = []
        inside_now, lanes = self._table.inside, self._counters.lanes
        for key, token_ids in step.more:
            sequence = inside_now.get(key)
            if sequence is not None:
                sequence.token_ids += token_ids
                lane = Lane.ONLINE if isinstance(sequence, Live) else sequence.job.lane
                lanes[lane].output_tokens += len(token_ids)
        for event in step.emitted:
            sequence = self._table.inside.get(event.key)
            if sequence is None:
                continue  # nobody wants it any more
            if event.error is not None:
                del self._table.inside[event.key]
                settle.append(lambda each=sequence, error=event.error: self.fail(each, error))
                continue
            lane = Lane.ONLINE if isinstance(sequence, Live) else sequence.job.lane
            if sequence.emitted(event, now_s):
                self._counters.begun(sequence, lane, now_s)
            self._counters.lanes[lane].output_tokens += len(event.token_ids)
            take = self._live_took if isinstance(sequence, Live) else self._background_took
            settle.append(take(sequence, event, now_s))  # type: ignore[arg-type]
        return settle

    def fail(self, sequence: Live | Background, error: Exception) -> None:
        """It has no answer; outside the lock."""
        if isinstance(sequence, Live):
            with self._lock:
                self._counters.lanes[Lane.ONLINE].failed += 1
            sequence.sink.fail(error)
            return
        with self._lock:
            self._counters.lanes[sequence.job.lane].failed += 1
        sequence.job.filling.fail(sequence.place, sequence.place + 1, error)
        sequence.job.settle_if_full()

    def _live_took(self, live: Live, event: Emitted, now_s: float) -> Settle:
        if event.finish is None:
            more = Delta(event.text, event.token_ids, logprobs=event.logprobs, tool_calls=event.tool_calls)
            return lambda: live.sink.put(more)
        finished = self._ended(live, Lane.ONLINE, event.finish, now_s)
        told = (finished.usage, event.logprobs, event.stopped_by, event.tool_calls)
        delta = Delta(event.text, event.token_ids, event.finish, *told)

        def settle() -> Wake | None:
            wake = live.sink.put(delta, finished)
            self._finished(finished)
            return wake

        return settle

    def _background_took(self, each: Background, event: Emitted, now_s: float) -> Settle:
        each.text += event.text
        each.logprobs += event.logprobs
        each.tool_calls += event.tool_calls
        text, finish, stopped_by = each.text, event.finish, event.stopped_by
        if each.prompt.begun and (finish is not None or each.prompt.params.stop):
            text, stopped_by = self._joined(each)
            if stopped_by is not None and finish is None:  # a stop string that began before it was taken out
                self._table.leaving.append(each.key)
            finish = finish if stopped_by is None else FinishReason.STOP
        if finish is None:
            return _nothing
        finished = self._ended(each, each.job.lane, finish, now_s)
        columns = answer_columns(text, finish, finished.usage.completion_tokens)

        def settle() -> None:
            filling, owner = each.job.filling, each.job.owner
            with self._lock:
                filling.output_tokens += finished.usage.completion_tokens
                filling.cached_tokens += finished.usage.cached_tokens
                owner.use.rows += 1
            told = (each.logprobs, stopped_by, joined_calls(each.tool_calls))
            filling.details[each.place] = RowDetails(finished.usage.cached_tokens, *told)
            filling.put(each.place, each.place + 1, columns, 0)
            each.job.settle_if_full()
            self._finished(finished)

        return settle

    def _joined(self, each: Background) -> tuple[str, str | None]:
        """The text of one that was taken out and has gone on, up to a stop string; which one."""
        text = self._runtime.text_of((*each.prompt.begun, *each.token_ids))
        at, stop = min(((text.find(stop), stop) for stop in each.prompt.params.stop if stop in text), default=(0, None))
        return (text, None) if stop is None else (text[:at], stop)

    def _ended(self, sequence: Live | Background, lane: Lane, finish: FinishReason, now_s: float) -> FinishedSequence:
        del self._table.inside[sequence.key]
        finished = sequence.finished(lane, finish, now_s)
        self._counters.ended(finished)
        return finished


def _nothing() -> None:
    pass
