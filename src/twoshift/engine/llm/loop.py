"""The loop that owns a language model: let in and take out, step, report."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from twoshift.engine.device_loop import DeviceLoop
from twoshift.engine.llm.llm_counters import LlmCounters
from twoshift.engine.llm.sequence_table import Orders, SequenceTable
from twoshift.engine.llm.sequences import Background, Live, LiveSink, WholeAnswer, answer_columns
from twoshift.engine.llm.settings import LlmObjective
from twoshift.engine.llm.stats import Finished, LlmStats
from twoshift.engine.llm.stream import TokenStream
from twoshift.engine.results import BlockAccumulator, BlockFuture, RowFuture
from twoshift.engine.stats import EngineStats, Queue
from twoshift.engine.waiting import BlockJob, BlockOwner
from twoshift.errors import Broken, InvalidInput, TooLarge, TryLater
from twoshift.generation import Delta, FinishReason, RowDetails, joined_calls
from twoshift.llm_ports import Emitted, LlmRuntime, Prompt, Prompts, Step
from twoshift.policy.admission import Refuse
from twoshift.policy.cost import CallCost
from twoshift.policy.governor import GovernorPolicy
from twoshift.policy.learn import CostLearner
from twoshift.policy.llm_admission import LiveSequence, LlmAdmissionPolicy, LlmBounds, LlmLoad
from twoshift.types import Lane

__all__ = ["LlmEngine"]

_LOOK_AGAIN_S = 0.05  # while background sequences wait for a reason that only time ends


class LlmEngine(DeviceLoop):
    """Prompts in, streams and blocks of answers out. Safe to use from any thread; one of its own runs the device.

    Live sequences are let in at once. Background ones are let in while the governor says that the next step keeps
    the objective, and taken out where it says that it would not; they go on later from the tokens that they have.
    """

    call = "step"

    def __init__(
        self,
        runtime: LlmRuntime,
        cost: CallCost,
        objective: LlmObjective | None = None,
        *,
        serves: bool = True,  # False: nobody waits, and background sequences have the whole device
        clock: Callable[[], float] = time.monotonic,
        start: bool = True,
    ) -> None:
        super().__init__(runtime, clock)
        self.runtime, self.objective = runtime, objective or LlmObjective()
        self.on_finished: Callable[[Finished], None] | None = None  # told in the loop's thread
        self._learner = CostLearner(cost)
        self._governor = GovernorPolicy(cost, self.objective.governed(runtime.shape, serves))
        self._admission = LlmAdmissionPolicy(self.objective.bounds(runtime.shape))
        self._books = LlmCounters(runtime.shape)
        self._roster = SequenceTable(runtime.shape)
        self._step_began_s: float | None = None
        self._start([threading.Thread(target=self._loop, name="twoshift-llm", daemon=True)], start)

    # For callers

    def stream(self, prompt: Prompt, tenant: str = "") -> TokenStream:
        """A live sequence, as it is generated, which the tenant pays; raises TryLater where too many wait, Broken."""
        return self.streams([prompt], tenant)[0]

    def streams(self, prompts: Sequence[Prompt], tenant: str = "", within_s: float = math.inf) -> list[TokenStream]:
        """All or none; raises TryLater where a first token is not predicted within that time, Broken."""
        keys: list[int] = []
        streams = [TokenStream(lambda at=at: self._forget_live(keys[at])) for at in range(len(prompts))]
        self._submit_live(prompts, streams, keys, tenant, within_s)
        return streams

    def submit(self, rows: Prompts, deadline_s: float = math.inf) -> list[RowFuture]:
        """Live sequences whose whole answers are wanted; the deadline is the caller's own to watch."""
        keys: list[int] = []
        futures = [RowFuture(lambda at=at: self._forget_live(keys[at])) for at in range(len(rows.prompts))]
        self._submit_live(rows.prompts, [WholeAnswer(future) for future in futures], keys)
        return futures

    def submit_block(
        self,
        rows: Prompts,
        lane: Lane = Lane.BATCH,
        deadline_s: float = math.inf,
        owed: bool = False,
        owner: BlockOwner | None = None,
    ) -> BlockFuture:
        """Background sequences, answered together; they are let in by shared prefixes.

        An owner brings its own deadline, and whether it is owed.
        """
        if lane is Lane.ONLINE or not rows.prompts:
            raise InvalidInput(
                "block", f"{len(rows.prompts)} rows in the {lane} lane", "rows in the micro or batch lane"
            )
        future = BlockFuture(lambda: self._forget_block(job))
        filling = BlockAccumulator(len(rows.prompts))
        job = BlockJob(rows, lane, deadline_s, owed, future, filling, self._clock(), owner or self._nobody)
        sequences = self._roster.in_line(rows.prompts, job)
        with self._lock:
            self._check_open()
            self._roster.line.add(sequences)
            self._changed.notify_all()
        return future

    def hold(self, owner: BlockOwner) -> None:
        """None of its sequences are let in any more, and those inside are taken out, until `release`."""
        with self._lock:
            self._roster.line.hold(owner)
            self._changed.notify_all()

    def release(self, owner: BlockOwner) -> None:
        """Its sequences are let in again."""
        with self._lock:
            self._roster.line.release(owner)
            self._changed.notify_all()

    def predicted_ttft_s(self, prompt_tokens: int, sequences: int = 1) -> float:
        """When live prompts that came now would have their first tokens, as far as the curve knows."""
        with self._lock:
            return self._admission.first_token_s(self._learner.cost, self._load(), prompt_tokens, sequences)

    @property
    def bounds(self) -> LlmBounds:
        """Within which live sequences are admitted."""
        return self._admission.bounds

    def cost(self) -> CallCost:
        """The curve of a step, as learned so far."""
        with self._lock:
            return self._learner.cost

    def stats(self) -> EngineStats:
        """Counters since the start, as any engine has them."""
        with self._lock:
            return self._books.engine_stats()

    def sequences(self) -> LlmStats:
        """How it stands and what it has done, in sequences and tokens."""
        with self._lock:
            self._roster.count(self._books.lanes)
            return self._books.stats(self._roster.live_held_tokens())

    def recent(self) -> list[Finished]:
        """The last sequences that ended, oldest first."""
        with self._lock:
            return list(self._books.recent)

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits: for the first token, or to be let in."""
        with self._lock:
            return self._roster.queues(self._clock())

    def _running_s(self, now_s: float) -> float:
        return 0.0 if self._step_began_s is None else now_s - self._step_began_s

    def _oldest_s(self, now_s: float) -> float:
        return self._roster.queues(now_s)[Lane.ONLINE].oldest_s

    def _is_overdue(self, now_s: float) -> bool:
        return False  # who waits for long is the model's to judge, by its objective

    # The loop

    def _loop(self) -> None:
        try:
            while self.step():
                pass
        except BaseException as error:
            self._die(error)

    def step(self, wait_s: float | None = None) -> bool:
        """Decide, run, report: one turn. False when there is nothing more to do."""
        with self._lock:
            orders = self._orders()
            if orders.is_empty and not self._roster.inside:
                return self._rest(wait_s)
            self._step_began_s = self._clock()
            inside = dict(self._roster.inside)  # whoever leaves in mid-step has had its part of it
        try:
            self._tell(orders)
            step = self.runtime.step(orders.prefill_tokens)
        finally:
            self._step_began_s = None
        with self._lock:
            settle = self._took(step, inside)
        for act in settle:
            act()
        return True

    def _rest(self, wait_s: float | None) -> bool:
        if self._stopping is not None:
            return False
        if wait_s is None and len(self._roster.line):
            wait_s = _LOOK_AGAIN_S
        self._changed.wait(wait_s)
        return True

    def _tell(self, orders: Orders) -> None:
        """Outside the lock: tokens may be copied to the device here."""
        for act in orders.settle:
            act()
        if orders.abort:
            self.runtime.abort(orders.abort)
        for each in orders.add:
            try:
                self.runtime.add(each.key, each.prompt, isinstance(each, Live))
            except Broken:
                raise
            except Exception as error:  # the request's own fault, as it seems
                with self._lock:
                    self._roster.inside.pop(each.key, None)
                self._fail(each, error)

    def _orders(self) -> Orders:
        """What is not wanted goes, live sequences come in, and background ones as the governor says."""
        roster = self._roster
        orders = roster.begin_orders()
        self._take_out([each for each in roster.background() if roster.line.is_held(each.job.owner)], orders)
        running = {each.key: each for each in roster.background()}
        waiting = {each.key: each for each in roster.line.first(self._governor.settings.lookahead)}
        if not running and not waiting:
            return orders
        decision = self._governor.decide(
            roster.live_load(),
            [each.governed() for each in running.values()],
            [each.governed() for each in waiting.values()],
            self._clock(),
        )
        self._books.why = decision.reason
        self._take_out([running[key] for key in decision.abort], orders)
        refused = [waiting[key] for key in decision.too_large]
        admitted = [waiting[key] for key in decision.admit]
        roster.line.remove([*refused, *admitted])
        orders.settle += [lambda each=each: self._fail(each, _too_large(each)) for each in refused]
        roster.let_in(admitted, orders)
        orders.prefill_tokens = decision.prefill_tokens or None
        return orders

    def _take_out(self, sequences: Sequence[Background], orders: Orders) -> None:
        self._books.requeued += len(sequences)
        self._books.reread_tokens += self._roster.take_out(sequences, orders)

    # After a step

    def _took(self, step: Step, inside: dict[int, Live | Background]) -> list[Callable[[], None]]:
        """Account for a step; what is to be told to whoever waits."""
        self._books.stepped(step, inside)
        if step.seconds is not None and self._learner.observed(step.size, step.seconds):
            self._governor.cost = self._learner.cost
        now_s = self._clock()
        settle: list[Callable[[], None]] = []
        for event in step.emitted:
            sequence = self._roster.inside.get(event.key)
            if sequence is None:
                continue  # nobody wants it any more
            if event.error is not None:
                del self._roster.inside[event.key]
                settle.append(lambda each=sequence, error=event.error: self._fail(each, error))
                continue
            lane = Lane.ONLINE if isinstance(sequence, Live) else sequence.job.lane
            if sequence.emitted(event, now_s):
                self._books.begun(sequence, lane, now_s)
            self._books.lanes[lane].output_tokens += len(event.token_ids)
            take = self._live_took if isinstance(sequence, Live) else self._background_took
            settle.append(take(sequence, event, now_s))  # type: ignore[arg-type]
        return settle

    def _live_took(self, live: Live, event: Emitted, now_s: float) -> Callable[[], None]:
        if event.finish is None:
            more = Delta(event.text, event.token_ids, logprobs=event.logprobs, tool_calls=event.tool_calls)
            return lambda: live.sink.put(more)
        finished = self._ended(live, Lane.ONLINE, event.finish, now_s)
        told = (finished.usage, event.logprobs, event.stopped_by, event.tool_calls)
        delta = Delta(event.text, event.token_ids, event.finish, *told)

        def settle() -> None:
            live.sink.put(delta, finished)
            self._told(finished)

        return settle

    def _background_took(self, each: Background, event: Emitted, now_s: float) -> Callable[[], None]:
        each.text += event.text
        each.logprobs += event.logprobs
        each.tool_calls += event.tool_calls
        text, finish, stopped_by = each.text, event.finish, event.stopped_by
        if each.prompt.begun and (finish is not None or each.prompt.params.stop):
            text, stopped_by = self._joined(each)
            if stopped_by is not None and finish is None:  # a stop string that began before it was taken out
                self._roster.leaving.append(each.key)
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
            self._told(finished)

        return settle

    def _joined(self, each: Background) -> tuple[str, str | None]:
        """The text of one that was taken out and has gone on, up to a stop string; which one."""
        text = self.runtime.text_of((*each.prompt.begun, *each.token_ids))
        at, stop = min(((text.find(stop), stop) for stop in each.prompt.params.stop if stop in text), default=(0, None))
        return (text, None) if stop is None else (text[:at], stop)

    def _ended(self, sequence: Live | Background, lane: Lane, finish: FinishReason, now_s: float) -> Finished:
        del self._roster.inside[sequence.key]
        finished = sequence.finished(lane, finish, now_s)
        self._books.ended(finished)
        return finished

    def _told(self, finished: Finished) -> None:
        if self.on_finished is not None:
            self.on_finished(finished)

    # Bookkeeping

    def _submit_live(
        self,
        prompts: Sequence[Prompt],
        sinks: Sequence[LiveSink],
        keys: list[int],
        tenant: str = "",
        within_s: float = math.inf,
    ) -> None:
        """The keys are there before the first token can be."""
        tokens = sum(len(each.token_ids) for each in prompts)
        with self._lock:
            self._check_open()
            answer = self._admission.decide(self._learner.cost, self._load(), tokens, len(prompts), within_s)
            if isinstance(answer, Refuse):
                raise TryLater(answer.reason, answer.retry_after_s)
            for prompt, sink in zip(prompts, sinks, strict=True):
                keys.append(self._roster.add_live(prompt, sink, self._clock(), tenant))
            self._changed.notify_all()

    def _load(self) -> LlmLoad:
        """As admission sees it."""
        live = self._roster.live()
        return LlmLoad(
            [LiveSequence(each.unread_tokens, each.left_tokens, each.held_tokens) for each in live],
            waiting=sum(each.first_s is None for each in live),
            background=len(self._roster.background()),
            kv_used_tokens=self._books.kv_use * self.runtime.shape.kv_tokens,
            step_s=0.0 if self._step_began_s is None else self._books.step_s,
        )

    def _forget_live(self, key: int) -> None:
        """It frees what it holds before the next step."""
        with self._lock:
            self._books.lanes[Lane.ONLINE].cancelled += self._roster.forget_live(key)
            self._changed.notify_all()

    def _forget_block(self, job: BlockJob) -> None:
        with self._lock:
            self._books.lanes[job.lane].cancelled += self._roster.forget_block(job)
            self._changed.notify_all()

    def _take_blocks(self, owner: BlockOwner | None = None) -> list[BlockJob]:
        jobs = [each for each in self._roster.jobs() if owner is None or each.owner is owner]
        for job in jobs:
            self._forget_block(job)
        return jobs

    def _take_live(self) -> list[Callable[[Exception], object]]:
        live = self._roster.live()
        for each in live:
            self._forget_live(each.key)
        return [each.sink.fail for each in live]

    def _fail(self, sequence: Live | Background, error: Exception) -> None:
        """It has no answer; outside the lock."""
        if isinstance(sequence, Live):
            with self._lock:
                self._books.lanes[Lane.ONLINE].failed += 1
            sequence.sink.fail(error)
            return
        with self._lock:
            self._books.lanes[sequence.job.lane].failed += 1
        sequence.job.filling.fail(sequence.place, sequence.place + 1, error)
        sequence.job.settle_if_full()


def _too_large(sequence: Background) -> TooLarge:
    tokens = sequence.prompt.tokens + sequence.prompt.max_tokens
    return TooLarge("prompt", f"{tokens:,} tokens with its answer", "fewer: the KV cache has less for jobs")


def _nothing() -> None:
    pass
