"""What an LLM engine has done since the start; the engine's lock guards it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field, replace

from twoshift.engine.llm.sequences import Background, Live
from twoshift.engine.llm.stats import FinishedSequence, LlmLane, LlmStats
from twoshift.engine.stats import CallRows, EngineStats
from twoshift.engine.waiting import BlockJob
from twoshift.llm_ports import LlmShape, Step
from twoshift.policy.lane_values import LaneUse
from twoshift.types import Lane

__all__ = ["LlmCounters"]

_RECENT = 4096  # sequences whose times are kept
_ANSWERS = 32  # over which the length of a live answer is averaged


@dataclass(slots=True)
class _Part:
    """Of a step, a job's."""

    job: BlockJob
    tokens: int = 0
    generated: int = 0


@dataclass(slots=True)
class LlmCounters:
    """Counters by lane; `recent` are the last sequences that ended."""

    shape: LlmShape
    steps: int = 0
    busy_s: float = 0.0
    step_s: float = 0.0
    kv_use: float = 0.0
    preemptions: int = 0
    requeued: int = 0
    reread_tokens: int = 0
    why: str = ""
    answer_tokens: float | None = None  # of a live answer, lately; None before the first
    lanes: dict[Lane, LlmLane] = field(default_factory=lambda: {lane: LlmLane() for lane in Lane})
    recent: deque[FinishedSequence] = field(default_factory=lambda: deque[FinishedSequence](maxlen=_RECENT))
    _use: dict[Lane, LaneUse] = field(default_factory=lambda: {lane: LaneUse() for lane in Lane})
    _tenants: dict[str, LaneUse] = field(default_factory=dict[str, LaneUse])  # of live sequences
    _waits_s: dict[Lane, float] = field(default_factory=lambda: dict.fromkeys(Lane, 0.0))
    _call_rows: dict[Lane, CallRows] = field(default_factory=lambda: {lane: CallRows() for lane in Lane})

    def stepped(self, step: Step, inside: dict[int, Live | Background], inside_now: Container[int]) -> None:
        """A step, its time shared out by the tokens of each sequence that was inside when it began.

        A background sequence that has been taken out since then begins anew: what the step read of it counts no more.
        """
        seconds = step.seconds or 0.0
        self.steps += 1
        self.busy_s += seconds
        self.step_s = seconds or self.step_s
        self.kv_use = step.kv_use
        self.preemptions += step.preempted
        those = [(inside[key], tokens) for key, tokens in step.tokens.items() if key in inside]
        total = sum(tokens for _, tokens in those)
        riding = any(isinstance(sequence, Live) for sequence, _ in those)
        token_s, jobs = seconds / max(1, total), dict[int, _Part]()
        for sequence, tokens in those:
            decodes = bool(sequence.token_ids)
            if isinstance(sequence, Live) or sequence.key in inside_now:
                sequence.processed(tokens)
            if isinstance(sequence, Background):
                job = sequence.job
                part = jobs.get(id(job)) or jobs.setdefault(id(job), _Part(job))
                part.tokens += tokens
                part.generated += tokens if decodes else 0
            else:
                self._had(Lane.ONLINE, tokens, token_s * tokens)
                self._paid(sequence, tokens, token_s * tokens)
                if decodes:
                    self._generated(sequence, tokens, token_s * tokens)
        for part in jobs.values():
            job, part_s = part.job, token_s * part.tokens
            job.filling.device_s += part_s
            job.owner.had(0, part.tokens, part_s, riding)
            job.owner.use.output_tokens += part.generated
            job.owner.use.output_s += token_s * part.generated
            self._had(job.lane, part.tokens, part_s)
        if those:
            self._call_rows[Lane.ONLINE if riding else Lane.BATCH].add(len(those))

    def begun(self, sequence: Live | Background, lane: Lane, now_s: float) -> None:
        """It has its first token."""
        each = self.lanes[lane]
        each.prompt_tokens += len(sequence.prompt.token_ids)
        each.cached_tokens += sequence.cached_tokens
        self._waits_s[lane] += now_s - sequence.arrived_s
        self._generated(sequence, 1, 0.0)  # by the step that has read the last of its prompt

    def ended(self, finished: FinishedSequence) -> None:
        """It has its last."""
        self.lanes[finished.lane].finished += 1
        self._use[finished.lane].rows += 1
        self.recent.append(finished)
        if finished.lane is Lane.ONLINE:
            tokens, known = finished.usage.completion_tokens, self.answer_tokens
            self.answer_tokens = tokens if known is None else known + (tokens - known) / _ANSWERS

    def stats(self, live_tokens: int) -> LlmStats:
        """A copy; live sequences hold so many tokens at the most: they may share some."""
        return LlmStats(
            lanes={lane: replace(each) for lane, each in self.lanes.items()},
            steps=self.steps,
            busy_s=self.busy_s,
            kv_use=self.kv_use,
            live_kv_use=min(self.kv_use, live_tokens / max(1, self.shape.kv_tokens)),
            kv_tokens=self.shape.kv_tokens,
            preemptions=self.preemptions,
            requeued=self.requeued,
            reread_tokens=self.reread_tokens,
            step_s=self.step_s,
            why=self.why,
        )

    def engine_stats(self) -> EngineStats:
        """The same as any engine tells it: a step is a call, and a sequence a row."""
        return EngineStats(
            lanes={lane: replace(use) for lane, use in self._use.items()},
            waits_s=dict(self._waits_s),
            call_rows={lane: CallRows([*each.counts], each.rows) for lane, each in self._call_rows.items()},
            calls=self.steps,
            busy_s=self.busy_s,
            failed_calls=0,
            out_of_memory=0,
            max_tokens=self.shape.step_tokens,
            tenants={name: replace(use) for name, use in self._tenants.items()},
        )

    def _had(self, lane: Lane, tokens: int, part_s: float) -> None:
        use = self._use[lane]
        use.tokens += tokens
        use.device_s += part_s
        self.lanes[lane].device_s += part_s

    def _generated(self, sequence: Live | Background, tokens: int, part_s: float) -> None:
        is_live = isinstance(sequence, Live)
        use = self._tenants.setdefault(sequence.tenant, LaneUse()) if is_live else sequence.job.owner.use
        use.output_tokens += tokens
        use.output_s += part_s

    def _paid(self, live: Live, tokens: int, part_s: float) -> None:
        use = self._tenants.setdefault(live.tenant, LaneUse())
        use.rows += live.steps == 1  # one that nobody waits for any more is counted, too
        use.tokens += tokens
        use.device_s += part_s
