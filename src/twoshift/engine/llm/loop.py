"""The loop that owns a language model: let in and take out, step, report."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from twoshift.engine.device_loop import DeviceLoop
from twoshift.engine.llm.llm_counters import LlmCounters
from twoshift.engine.llm.sequence_table import Orders, SequenceTable
from twoshift.engine.llm.sequences import Background, Live, LiveSink, WholeAnswer
from twoshift.engine.llm.settings import LlmObjective
from twoshift.engine.llm.stats import FinishedSequence, LlmStats
from twoshift.engine.llm.step_outcomes import StepOutcomes
from twoshift.engine.llm.stream import TokenStream, wake_all
from twoshift.engine.results import BlockAccumulator, BlockFuture, RowFuture
from twoshift.engine.stats import EngineStats
from twoshift.engine.waiting import BlockJob, BlockOwner
from twoshift.errors import Broken, InvalidInput, TooLarge, TryLater
from twoshift.llm_ports import LlmRuntime, Prompt, Prompts
from twoshift.policy.admission import Refuse
from twoshift.policy.cost import CallCost
from twoshift.policy.governor import GovernorPolicy
from twoshift.policy.llm_admission import LiveSequence, LlmAdmissionPolicy, LlmBounds, LlmLoad, likely_left
from twoshift.policy.step_curves import StepCurves
from twoshift.types import Lane

__all__ = ["LlmEngine"]

_DECIDES_AGAIN = 8  # steps after which the governor is asked although nobody came or went
_SWITCH_S = 0.0005  # how long a thread may keep the interpreter from one that wants it
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
        live_cost: CallCost | None = None,  # of steps without background sequences, where it was learned before
        serves: bool = True,  # False: nobody waits, and background sequences have the whole device
        clock: Callable[[], float] = time.monotonic,
        start: bool = True,
    ) -> None:
        self._counters = LlmCounters(runtime.shape)
        self._table = SequenceTable(runtime.shape, self._counters.lanes)
        super().__init__(runtime, self._table, clock)
        self.runtime, self.objective = runtime, objective or LlmObjective()
        self.on_finished: Callable[[FinishedSequence], None] | None = None  # told in the loop's thread
        self.curves = StepCurves(cost, live_cost)  # of steps that read and of those that only decode, as learned so far
        governed = self.objective.governed(runtime.shape, serves)
        self._governor = GovernorPolicy(self.curves, governed, self.curves.alone)
        self._admission = LlmAdmissionPolicy(self.objective.bounds(runtime.shape))
        self._outcomes = StepOutcomes(runtime, self._table, self._counters, self._lock, self._finished)
        self._step_began_s: float | None = None
        self._full: tuple[int, int] | None = None  # who ran and waited when the governor last changed nothing
        self._since_asked = 0  # steps
        self._inside_before: dict[int, Live | Background] = {}  # when the step before was decided
        # A step must not wait until another thread has answered a dozen requests
        sys.setswitchinterval(min(_SWITCH_S, sys.getswitchinterval()))
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

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted."""
        return self.objective.max_waiting

    def submit_block(self, rows: Prompts, lane: Lane = Lane.BATCH, *, owner: BlockOwner | None = None) -> BlockFuture:
        """Background sequences, answered together; they are let in by their owners' turns and by shared prefixes."""
        lane = lane if owner is None else owner.lane
        if lane is Lane.ONLINE or not rows.prompts:
            raise InvalidInput(
                "block",
                f"{len(rows.prompts)} rows in the {lane} lane",
                "at least one row, in the lane `micro` or `batch`",
            )
        future = BlockFuture(lambda: self._forget_block(job))
        filling, owner = BlockAccumulator(len(rows.prompts)), owner or self._nobody
        job = BlockJob(rows, lane, owner.deadline_s, owner.owed, future, filling, self._clock(), owner)
        sequences = self._table.sequences_of(rows.prompts, job)
        with self._lock:
            self._check_open()
            self._table.pending.add(sequences)
            self._changed.notify_all()
        return future

    @property
    def bounds(self) -> LlmBounds:
        """Within which live sequences are admitted."""
        return self._admission.bounds

    def cost(self) -> CallCost:
        """The curve of a step beside background sequences, as learned so far."""
        with self._lock:
            return self.curves.cost

    def live_cost(self) -> CallCost:
        """The same of a step without them."""
        with self._lock:
            return self.curves.alone.cost

    def learned_costs(self) -> tuple[CallCost | None, CallCost | None]:
        """Both; None before such steps were seen."""
        with self._lock:
            return self.curves.learned

    def stats(self) -> EngineStats:
        """Counters since the start, as any engine has them."""
        with self._lock:
            return self._counters.engine_stats()

    def sequences(self) -> LlmStats:
        """How it stands and what it has done, in sequences and tokens."""
        with self._lock:
            self._table.count()
            return self._counters.stats(self._table.live_held_tokens())

    def recent(self) -> list[FinishedSequence]:
        """The last sequences that ended, oldest first."""
        with self._lock:
            return list(self._counters.recent)

    def _running_s(self, now_s: float) -> float:
        return 0.0 if self._step_began_s is None else now_s - self._step_began_s

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
            if orders.is_empty and not self._table.inside:
                return self._rest(wait_s)
            self._step_began_s = self._clock()
            # Whoever leaves in mid-step has had its part of it; what ends now may have begun a step earlier
            inside = {**self._inside_before, **self._table.inside}
            self._inside_before = dict(self._table.inside)
        try:
            self._tell(orders)
            step = self.runtime.step(orders.prefill_tokens)
        finally:
            self._step_began_s = None
        with self._lock:
            if step.seconds is not None:
                size, ended_s = step.size, self._clock()
                shared = _has_background(step.tokens, inside)
                read, reads_next = (sum(n > 1 for n in each.values()) for each in (step.tokens, step.begun))
                self.curves.observed(size, step.seconds, ended_s, shared, reads_next > 0, read)
                streams = sum(isinstance(inside.get(key), Live) for key in step.tokens)
                if streams:
                    self._governor.stepped(step.seconds, 0 if read or reads_next else streams)
            settle = self._outcomes.took(step, inside, self._clock())
            self._table.begun(step.begun)
        wake_all([wake for act in settle if (wake := act()) is not None])
        return True

    def _rest(self, wait_s: float | None) -> bool:
        if self._stopping is not None:
            return False
        if wait_s is None and len(self._table.pending):
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
                    self._table.inside.pop(each.key, None)
                self._outcomes.fail(each, error)

    def _orders(self) -> Orders:
        """What is not wanted goes, live sequences come in, and background ones as the governor says."""
        table = self._table
        orders = table.begin_orders()
        self._take_out([each for each in table.background() if table.pending.is_held(each.job.owner)], orders)
        running = {each.key: each for each in table.background()}
        waiting = {each.key: each for each in table.pending.first(self._governor.settings.lookahead)}
        if (not running and not waiting) or self._is_full(running, waiting):
            return orders
        decision = self._governor.decide(
            table.live_load(),
            [each.governed() for each in running.values()],
            [each.governed() for each in waiting.values()],
            self._clock(),
        )
        changes = decision.admit or decision.abort or decision.too_large
        self._full, self._since_asked = None if changes else (len(running), len(waiting)), 0
        self._counters.why = decision.reason
        self._take_out([running[key] for key in decision.abort], orders)
        refused = [waiting[key] for key in decision.too_large]
        admitted = [waiting[key] for key in decision.admit]
        table.pending.remove([*refused, *admitted])
        orders.settle += [lambda each=each: self._outcomes.fail(each, _too_large(each)) for each in refused]
        table.let_in(admitted, orders)
        orders.prefill_tokens = decision.prefill_tokens or None
        return orders

    def _is_full(self, running: dict[int, Background], waiting: dict[int, Background]) -> bool:
        """Whether the governor would say what it said a few steps ago: nobody came or went, and no prompt is read."""
        self._since_asked += 1
        if self._full != (len(running), len(waiting)) or self._since_asked >= _DECIDES_AGAIN:
            return False
        return len(running) == len(self._table.inside) and all(each.token_ids for each in running.values())

    def _take_out(self, sequences: Sequence[Background], orders: Orders) -> None:
        self._counters.requeued += len(sequences)
        self._counters.reread_tokens += self._table.take_out(sequences, orders)

    def _finished(self, finished: FinishedSequence) -> None:
        if self.on_finished is not None:
            self.on_finished(finished)

    # Live sequences

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
            answer = self._admission.decide(self.curves, self._load(), tokens, len(prompts), within_s)
            if isinstance(answer, Refuse):
                raise TryLater(answer.reason, answer.retry_after_s)
            for prompt, sink in zip(prompts, sinks, strict=True):
                keys.append(self._table.add_live(prompt, sink, self._clock(), tenant))
            self._changed.notify_all()

    def _load(self) -> LlmLoad:
        """As admission sees it."""
        live, usual = self._table.live(), self._counters.answer_tokens
        return LlmLoad(
            [
                LiveSequence(
                    each.unread_tokens, each.left_tokens, each.held_tokens, likely_left(len(each.token_ids), usual)
                )
                for each in live
            ],
            waiting=sum(each.first_s is None for each in live),
            background=len(self._table.background()),
            kv_used_tokens=self._counters.kv_use * self.runtime.shape.kv_tokens,
            step_s=0.0 if self._step_began_s is None else self._counters.step_s,
        )

    def _forget_live(self, key: int) -> None:
        """It frees what it holds before the next step."""
        with self._lock:
            self._table.forget_live(key)
            self._changed.notify_all()


def _has_background(keys: Iterable[int], inside: Mapping[int, Live | Background]) -> bool:
    return any(isinstance(inside.get(key), Background) for key in keys)


def _too_large(sequence: Background) -> TooLarge:
    tokens = sequence.prompt.tokens + sequence.prompt.max_tokens
    return TooLarge(
        "prompt",
        f"{tokens:,} tokens for prompt and answer",
        "a shorter prompt or a smaller `max_tokens`: jobs may use only a part of the KV cache",
    )
