"""The sequences of an LLM engine, as they wait and as they run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from twoshift.engine.llm.stats import FinishedSequence
from twoshift.engine.llm.stream import Wake
from twoshift.engine.results import RowFuture, RowResult
from twoshift.engine.waiting import BlockJob
from twoshift.generation import Delta, FinishReason, TokenLogprob, TokenUsage, ToolCallDelta
from twoshift.llm_ports import Emitted, Prompt
from twoshift.policy.governor_values import BackgroundSequence
from twoshift.ports import Columns
from twoshift.types import Lane

__all__ = ["Background", "Live", "LiveSink", "WholeAnswer", "answer_columns"]

TEXT, FINISH, OUTPUT_TOKENS = "text", "finish_reason", "output_tokens"


class LiveSink(Protocol):
    """Who waits for a live sequence; called in the engine's thread."""

    def put(self, delta: Delta, finished: FinishedSequence | None = None) -> Wake | None:
        """More of it; the last one with what it all took. Who has to be woken for it."""
        ...

    def fail(self, error: Exception) -> None:
        """It ends here."""
        ...


@dataclass(slots=True, eq=False)
class _Sequence:
    """What live and background sequences have in common."""

    key: int
    prompt: Prompt
    arrived_s: float
    token_ids: list[int] = field(default_factory=list[int])  # generated since it was let in
    read_tokens: int = 0  # of its prompt, since it was let in
    reading_tokens: int = 0  # of its prompt, in steps that have begun and not ended
    cached_tokens: int = 0  # of its prompt
    first_s: float | None = None  # when its first token came
    steps: int = 0  # that it was in
    counted: TokenUsage | None = None  # by the runtime, once it is over

    @property
    def reserved_tokens(self) -> int:
        """Of the KV cache: it may grow to this."""
        return len(self.prompt.token_ids) + self.prompt.max_tokens

    @property
    def held_tokens(self) -> int:
        """Of the KV cache, once its prompt is read."""
        return self.prompt.tokens + len(self.token_ids)

    @property
    def left_tokens(self) -> int:
        """That it may still generate."""
        return max(0, self.prompt.max_tokens - len(self.prompt.begun) - len(self.token_ids))

    @property
    def unread_tokens(self) -> int:
        """Of its prompt."""
        return 0 if self.token_ids else max(0, self.prompt.tokens - self.read_tokens - self.reading_tokens)

    def begun(self, tokens: int) -> None:
        """Its part of a step that is on its way."""
        if not self.token_ids:
            self.reading_tokens += tokens

    def processed(self, tokens: int) -> None:
        """Its part of a step."""
        self.steps += 1
        self.reading_tokens = max(0, self.reading_tokens - tokens)
        if not self.token_ids:
            self.read_tokens = min(self.prompt.tokens, self.read_tokens + tokens)

    def emitted(self, event: Emitted, now_s: float) -> bool:
        """New tokens of it; whether they are its first."""
        self.token_ids += event.token_ids
        self.counted = event.usage
        if self.first_s is not None or not event.token_ids:
            return False
        self.first_s, self.cached_tokens = now_s, event.cached_tokens
        return True

    def usage(self) -> TokenUsage:
        """What it took; what was read again after it was taken out is not its fault."""
        if self.counted is not None:
            return self.counted
        generated = len(self.prompt.begun) + len(self.token_ids)
        return TokenUsage(len(self.prompt.token_ids), generated, self.cached_tokens)

    def finished(self, lane: Lane, finish: FinishReason, now_s: float) -> FinishedSequence:
        """It has its whole answer."""
        first_s = now_s if self.first_s is None else self.first_s
        ttft_s, seconds, streamed = first_s - self.arrived_s, now_s - self.arrived_s, not self.prompt.whole
        return FinishedSequence(lane, finish, self.usage(), now_s, ttft_s, seconds, streamed)


@dataclass(slots=True, eq=False)
class Live(_Sequence):
    """Somebody reads it as it comes."""

    sink: LiveSink = field(kw_only=True)
    tenant: str = ""  # who pays


@dataclass(slots=True, eq=False)
class Background(_Sequence):
    """A row of a block."""

    job: BlockJob = field(kw_only=True)
    place: int = field(kw_only=True)  # in the block
    shared_tokens: int = 0  # of its prompt, with the one before it in the line: read once for both
    text: str = ""  # since it was let in
    logprobs: tuple[TokenLogprob, ...] = ()  # of its tokens since then
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def governed(self) -> BackgroundSequence:
        """As the governor sees it."""
        read = max(self.read_tokens + self.reading_tokens, self.shared_tokens)
        read = self.prompt.tokens if self.token_ids else min(read, self.prompt.tokens)
        most = self.prompt.max_tokens - len(self.prompt.begun)
        return BackgroundSequence(self.key, self.prompt.tokens, most, read, len(self.token_ids))

    def taken_out(self, continues: bool) -> int:
        """Back to the line: what was generated is kept, where it can be gone on from; the tokens to read again."""
        again = self.read_tokens
        if continues and self.prompt.can_continue:
            again += len(self.token_ids)
            self.prompt = replace(self.prompt, begun=(*self.prompt.begun, *self.token_ids))
        self.token_ids, self.read_tokens, self.shared_tokens, self.text = [], 0, 0, ""
        self.reading_tokens = 0
        self.logprobs, self.tool_calls = (), ()
        return again


class WholeAnswer:
    """A live sequence whose reader wants all of it at once."""

    def __init__(self, future: RowFuture) -> None:
        self._future, self._text = future, ""

    def put(self, delta: Delta, finished: FinishedSequence | None = None) -> None:
        """More of it."""
        self._text += delta.text
        if finished is not None:
            columns = answer_columns(self._text, finished.finish, finished.usage.completion_tokens)
            self._future.settle(RowResult(columns, 0, finished.seconds, 1))

    def fail(self, error: Exception) -> None:
        """It ends here."""
        self._future.settle(error)


def answer_columns(text: str, finish: FinishReason, output_tokens: int) -> Columns:
    """One row, as every row of a language model is."""
    return {
        TEXT: np.array([text], object),
        FINISH: np.array([str(finish)], object),
        OUTPUT_TOKENS: np.array([output_tokens], np.int64),
    }
