"""A language model that is served: its prompts are admitted and prepared, and its sequences begun."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import fmean

from twoshift.engine.llm import LlmEngine, LlmStats
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.errors import InvalidInput, Late, TooLarge, TooLong, TryLater
from twoshift.generation import GenerationRequest
from twoshift.llm_ports import Prompts
from twoshift.ports import RuntimeInfo
from twoshift.runtime.tokenization import TextTokens, Tokenized
from twoshift.serve.completions import Completions
from twoshift.serve.llm.language_model import TakesPrompts
from twoshift.serve.llm.metrics import LlmMetrics
from twoshift.serve.llm.running import Running
from twoshift.serve.llm_derived import LlmDerived, derive_llm
from twoshift.serve.profile_keeper import ProfileKeeper
from twoshift.serve.stages import Stages
from twoshift.types import Lane, ReplicaCounts, Tensor

__all__ = ["ServedLlm", "prompt_characters"]

_PREPARE_THREADS = 2
_CHARACTERS_PER_TOKEN = 64  # at most: a longer text cannot fit, whatever its tokens are
_LEAST_WAIT_S, _LONGEST_STEP_S = 0.1, 30.0
_LATEST = 256  # answers: which of them were streamed


class ServedLlm(TakesPrompts):
    """A model, the engine that owns its device, and what follows from its objective."""

    def __init__(
        self, name: str, engine: LlmEngine, keeper: ProfileKeeper | None = None, stream_token_s: float = 0.0
    ) -> None:
        """`stream_token_s` is what a token costs the host where it is streamed."""
        self.name, self.engine, self._keeper, self._stream_token_s = name, engine, keeper, stream_token_s
        self.derived = self.derived_now()  # from the curve that it began with
        self.outputs = (Tensor("text", "text"), Tensor("finish_reason", "text"), Tensor("output_tokens", "int64"))
        self.generated = LlmMetrics()
        self.generated.objective = self.derived.ttft_s, self.derived.tpot_s
        engine.on_finished = self.generated.finished
        self._threads = ThreadPoolExecutor(_PREPARE_THREADS, f"twoshift-prepare-{name}")
        self._preparing = 0
        self.offered_rows = self.refused_rows = 0  # sequences; those told to come back are in both
        if keeper is not None:
            keeper.start()

    @property
    def crashes(self) -> int:
        """1 where its engine has died."""
        return int(bool(self.engine.why_dead))

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self.engine.runtime.info

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted."""
        return self.engine.most_rows

    def start(self, _completions: Completions) -> None:
        """Its engine runs already."""

    def derived_now(self) -> LlmDerived:
        """From the curve as learned so far."""
        engine, recent = self.engine, self.engine.recent()
        latest = [each.streamed for each in recent if each.lane is Lane.ONLINE][-_LATEST:]
        more_s = self._stream_token_s * (1 - fmean(latest) if latest else 1.0)
        usages = [each.usage for each in recent]
        return derive_llm(engine.live_cost(), engine.objective, engine.runtime.shape, usages, more_s)

    def health(self) -> Health:
        """Whether it keeps up; a step or a wait of much more than the objective is stuck."""
        longest_s = max(_LONGEST_STEP_S, 20 * self.derived.ttft_s)
        health = self.engine.health(longest_s)
        if health.healthy and health.oldest_wait_s > longest_s:
            told = f"a request has waited for its first token for {health.oldest_wait_s:.3g} s"
            return replace(health, healthy=False, reason=told)
        return health

    def stats(self) -> EngineStats:
        """What its device has done."""
        return self.engine.stats()

    def waiting(self) -> dict[Lane, Queue]:
        """Who waits for it."""
        return self.engine.waiting()

    def replicas(self) -> ReplicaCounts:
        """Itself."""
        return ReplicaCounts(1)

    def sequences(self) -> LlmStats:
        """How it stands and what it has done, in sequences and tokens."""
        return self.engine.sequences()

    def text_tokens(self) -> TextTokens:
        """Its tokenizer; raises InvalidInput where that is another server's."""
        if not isinstance(self.engine.runtime, Tokenized):
            raise InvalidInput(
                "model", self.name, "a model that runs on this server; this model runs on another server"
            )
        return self.engine.runtime.tokens

    async def begin(
        self,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        left: Callable[[], None],
        tenant: str = "",
    ) -> Running:
        """Their sequences; raises InvalidInput, TooLarge, TryLater, Late, Broken. `left` is told once it is closed."""
        self.offered_rows += len(rows)
        try:
            return await self._begun(rows, timeout_s, arrived_s, left, tenant)
        except TryLater:
            self.refused_rows += len(rows)
            raise

    async def _begun(
        self,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        left: Callable[[], None],
        tenant: str,
    ) -> Running:
        self._check(rows)
        stages = Stages(admit=(began_s := time.monotonic()) - arrived_s, call_rows=len(rows))
        deadline_s = None if timeout_s is None else arrived_s + timeout_s
        prompts = await self._prepared(rows, deadline_s)
        stages.prepare = time.monotonic() - began_s
        tokens = sum(len(each.token_ids) for each in prompts.prompts)
        self._check_prompts(prompts)
        within_s = self.derived.ttft_s if timeout_s is None else timeout_s
        running = Running(self.engine.streams(prompts.prompts, tenant, within_s), tokens, stages, left)
        if deadline_s is not None:
            running.end_by(deadline_s)
        return running

    def close(self) -> None:
        """Let the model go, once its step has ended."""
        self._threads.shutdown(cancel_futures=True)
        if self._keeper is not None:
            self._keeper.close()
        self.engine.close()

    def _check(self, rows: Sequence[GenerationRequest]) -> None:
        """Refuse what can never be answered before it costs anything."""
        if len(rows) > self.most_rows:
            raise TooLarge("n", f"{len(rows):,} answers", f"at most {self.most_rows:,} answers in a request")
        context = self.engine.runtime.shape.context_tokens
        for each in rows:
            if (size := prompt_characters(each)) > _CHARACTERS_PER_TOKEN * context:
                raise TooLong.of(context, size // _CHARACTERS_PER_TOKEN, each.params.max_tokens or 1, or_more=True)
        if self._preparing >= self.most_rows:
            why = f"the server already prepares {self._preparing} requests to {self.name}, which is the limit"
            raise TryLater(why, _LEAST_WAIT_S)

    async def _prepared(self, rows: Sequence[GenerationRequest], deadline_s: float | None) -> Prompts:
        self._preparing += 1
        prepared = asyncio.get_running_loop().run_in_executor(self._threads, self.engine.runtime.prepare, rows)
        try:
            async with asyncio.timeout(None if deadline_s is None else max(0.0, deadline_s - time.monotonic())):
                return await prepared
        except TimeoutError:
            raise Late("the prompts of the request were not prepared by its deadline") from None
        finally:
            self._preparing -= 1

    def _check_prompts(self, prompts: Prompts) -> None:
        kv_tokens = self.engine.runtime.shape.kv_tokens
        for each in prompts.prompts:
            if len(each.token_ids) + each.max_tokens > kv_tokens:
                raise TooLong.of(kv_tokens, len(each.token_ids), each.max_tokens)


def prompt_characters(row: GenerationRequest) -> int:
    """About so many; a turn has a token of its own, even where nothing is said in it."""
    if isinstance(row.prompt, str):
        return len(row.prompt)
    told = 0 if row.tools is None else row.tools.characters
    return told + sum(1 if isinstance(each, int) else _CHARACTERS_PER_TOKEN + len(each.text) for each in row.prompt)
