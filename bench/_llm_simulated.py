"""A language model on a GPU that takes no time: an interpreter and a device that overlap, by costs like an H200's.

A turn is as vLLM's with asynchronous scheduling: the interpreter decides the next step and launches it, then waits for
the step before and takes what it brought. A step that reads prompts has no whole CUDA graph: its launch takes longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twoshift.generation import FinishReason, GenerationRequest
from twoshift.llm_ports import Emitted, LlmShape, Prompt, Prompts, Step
from twoshift.ports import RuntimeInfo

INFO = RuntimeInfo("simulated", "sha256:0", "simulated", "cuda", "bf16", 8192, ("text",), True)
SHAPE = LlmShape(context_tokens=8192, kv_tokens=880_000, block_tokens=16, step_tokens=8192, max_sequences=256)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. The defaults are near what one H200 showed for Llama-3.1-8B's shape in bf16."""

    device_s: float = 3.9e-3  # a step of the device
    device_row_s: float = 20e-6  # each sequence that is decoded in it
    device_token_s: float = 23e-6  # each token of a prompt
    host_s: float = 3.6e-3  # a step of the interpreter: schedule, launch, take
    host_row_s: float = 34e-6  # each sequence
    host_read_s: float = 12e-3  # a step that reads: launched layer by layer
    host_live_s: float = 20e-6  # each token of a live stream: told to who reads it
    launch_share: float = 0.6  # of the interpreter's time, before the device can begin


@dataclass(slots=True)
class _Inside:
    prompt: Prompt
    live: bool
    read: int = 0  # scheduled
    made: int = 0  # scheduled, of its answer
    told: int = 0


@dataclass(slots=True)
class _Begun:
    tokens: dict[int, int]
    makes: list[int]
    began_s: float
    ends_s: float
    take_s: float


@dataclass(slots=True)
class SimulatedLlm:
    """An `LlmRuntime` under a clock of its own."""

    costs: Costs = Costs()
    shape: LlmShape = SHAPE
    info: RuntimeInfo = INFO
    now_s: float = 0.0
    inside: dict[int, _Inside] = field(default_factory=dict[int, _Inside])
    _flying: deque[_Begun] = field(default_factory=deque[_Begun])
    _cached: dict[int, int] = field(default_factory=dict[int, int])
    _free_s: float = 0.0
    _ended_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        raise NotImplementedError

    def text_of(self, token_ids: Sequence[int]) -> str:
        return "a" * len(token_ids)

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        while self._flying and not self.inside:
            self._end()
        self.inside[key] = _Inside(prompt, live, min(self._cached.pop(key, 0), prompt.tokens - 1))

    def abort(self, keys: Sequence[int]) -> None:
        for key in keys:
            gone = self.inside.pop(key, None)
            if gone is not None:  # whole blocks of it stay in the prefix cache
                self._cached[key] = (gone.read + gone.made) // self.shape.block_tokens * self.shape.block_tokens

    def close(self) -> None:
        pass

    def step(self, prefill_tokens: int | None = None) -> Step:
        """Begins one, and ends the one before it."""
        if not self.inside:
            return Step()
        self._begin(prefill_tokens or self.shape.step_tokens)
        begun = self._flying[-1].tokens
        return Step(begun=begun) if len(self._flying) < 2 else replace(self._end(), begun=begun)

    def _begin(self, most: int) -> None:
        began_s, left = self.now_s, self.shape.step_tokens
        tokens, makes = dict[int, int](), list[int]()
        for key, each in sorted(self.inside.items(), key=lambda item: (not item[1].read, not item[1].live)):
            unread = each.prompt.tokens - each.read
            if not unread and each.made >= each.prompt.max_tokens - len(each.prompt.begun):
                continue
            now = min(left, most, unread) if unread else min(left, 1)
            if now <= 0:
                continue
            left -= now
            tokens[key] = now
            each.read += min(unread, now)
            if each.read == each.prompt.tokens:
                each.made += 1
                makes.append(key)
        self._launch(tokens, makes, began_s)

    def _launch(self, tokens: dict[int, int], makes: list[int], began_s: float) -> None:
        costs, reads = self.costs, sum(each for each in tokens.values() if each > 1)
        live = sum(key in self.inside and self.inside[key].live for key in makes)
        host_s = costs.host_s + costs.host_row_s * len(tokens) + (costs.host_read_s if reads else 0.0)
        take_s = (1 - costs.launch_share) * host_s + costs.host_live_s * live
        self.now_s += costs.launch_share * host_s
        singles = sum(each == 1 for each in tokens.values())
        runs_s = costs.device_s + costs.device_row_s * singles + costs.device_token_s * reads if tokens else 0.0
        self._free_s = max(self._free_s, self.now_s) + runs_s
        self._flying.append(_Begun(tokens, makes, began_s, self._free_s, take_s))

    def _end(self) -> Step:
        begun = self._flying.popleft()
        self.now_s = max(self.now_s, begun.ends_s) + begun.take_s
        seconds = self.now_s - max(begun.began_s, self._ended_s)
        self._ended_s = self.now_s
        emitted, more = list[Emitted](), list[tuple[int, Sequence[int]]]()
        for key in begun.makes:
            each = self.inside.get(key)
            if each is None:
                continue
            each.told += 1
            is_last = each.told >= each.prompt.max_tokens - len(each.prompt.begun)
            if is_last:
                del self.inside[key]
            if not is_last and not each.live and each.told > 1:
                more.append((key, (7,)))
            else:
                emitted.append(Emitted(key, "", (7,), FinishReason.LENGTH if is_last else None))
        held = sum(each.read + each.made for each in self.inside.values())
        return Step(
            tuple(emitted), begun.tokens, seconds if begun.tokens else None, held / self.shape.kv_tokens, more=more
        )
