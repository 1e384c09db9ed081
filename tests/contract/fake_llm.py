"""A language model of arithmetic: what it generates follows from the prompt, and what a step takes from a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twoshift.errors import TooLarge
from twoshift.generation import FinishReason, GenerationParams, GenerationRequest, Message
from twoshift.llm_ports import Emitted, LlmShape, Prompt, Prompts, Step
from twoshift.policy.cost import CallCost
from twoshift.ports import RuntimeInfo

__all__ = ["FakeLlm", "PipelinedLlm", "prompt_of", "words_after"]

INFO = RuntimeInfo("fake", "sha256:0", "fake", "cpu", "fp32", 256, ("text", "finish_reason", "output_tokens"), True)
SHAPE = LlmShape(context_tokens=256, kv_tokens=1024, block_tokens=4, step_tokens=16, max_sequences=8)
_WORDS = "abcdefghijklmnopqrstuvwxyz"


def prompt_of(*token_ids: int, max_tokens: int = 5, **params: object) -> Prompt:
    """A prompt as `prepare` makes it."""
    return Prompt(token_ids, GenerationParams(**params), max_tokens)  # type: ignore[arg-type]


def words_after(token_ids: Sequence[int], count: int) -> list[int]:
    """What is generated after these tokens: each depends on all before it."""
    known = list(token_ids)
    for _ in range(count):
        known.append((sum(known) * 31 + len(known) ** 2) % len(_WORDS))
    return known[len(token_ids) :]


def _ids_of(prompt: tuple[Message, ...] | str | tuple[int, ...]) -> tuple[int, ...]:
    said = prompt if isinstance(prompt, str) else "".join(m.content for m in prompt if not isinstance(m, int))
    return tuple(map(ord, said)) or tuple(each for each in prompt if isinstance(each, int))


@dataclass(slots=True)
class _Inside:
    prompt: Prompt
    live: bool
    cached: int
    read: int
    out: list[int] = field(default_factory=list)


class FakeLlm:
    """Reads `step_tokens` of prompts a step, live ones first, and generates a token for each that is read."""

    info = INFO

    def __init__(self, shape: LlmShape = SHAPE, cost: CallCost | None = None) -> None:
        self.shape = shape
        self.cost = cost or CallCost(0.01, 0.001, per_row_s=0.002)
        self.inside: dict[int, _Inside] = {}
        self.aborted: list[int] = []
        self.added: list[tuple[int, Prompt]] = []
        self.steps: list[Step] = []
        self.closed = False
        self.broken: Exception | None = None
        self._seen: dict[str, set[tuple[int, ...]]] = {}  # of each adapter: prefixes in whole blocks that were read

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        """A token a character; tokens as they are."""
        made = list[Prompt]()
        for row in rows:
            ids = _ids_of(row.prompt)
            if len(ids) >= self.shape.context_tokens:
                raise TooLarge("prompt", f"{len(ids)} tokens", f"at most {self.shape.context_tokens - 1}")
            most = self.shape.context_tokens - len(ids)
            made.append(Prompt(ids, row.params, min(most, row.params.max_tokens or most), adapter=row.adapter))
        return Prompts(tuple(made))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """A letter a token."""
        return "".join(_WORDS[each] for each in token_ids)

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        """What was read before, in whole blocks, is there already."""
        ids = (*prompt.token_ids, *prompt.begun)
        size = self.shape.block_tokens
        seen, lengths = self._seen.setdefault(prompt.adapter, set()), range((len(ids) - 1) // size * size, 0, -size)
        cached = next((n for n in lengths if ids[:n] in seen), 0)
        seen.update(ids[:n] for n in range(size, len(ids) + 1, size))
        self.added.append((key, prompt))
        self.inside[key] = _Inside(prompt, live, cached, cached)

    def abort(self, keys: Sequence[int]) -> None:
        """They are gone."""
        for key in keys:
            self.aborted.append(key)
            self.inside.pop(key, None)

    def step(self, prefill_tokens: int | None = None) -> Step:
        """One forward pass."""
        if self.broken is not None:
            raise self.broken
        left, tokens, emitted = self.shape.step_tokens, dict[int, int](), list[Emitted]()
        for key, each in sorted(self.inside.items(), key=lambda item: (not item[1].live, item[0])):
            unread = each.prompt.tokens - each.read
            now = min(left, unread or 1, prefill_tokens or unread or 1)
            if now <= 0:
                continue
            left -= now
            tokens[key] = now
            each.read += now if unread else 0
            if each.read == each.prompt.tokens:
                emitted.append(self._emit(key, each))
        seconds = self.cost.seconds(Step(tokens=tokens).size) if tokens else None
        use = sum(each.prompt.tokens + len(each.out) for each in self.inside.values()) / self.shape.kv_tokens
        self.steps.append(Step(tuple(emitted), tokens, seconds, use))
        return self.steps[-1]

    def close(self) -> None:
        """No more."""
        self.closed = True

    def _emit(self, key: int, each: _Inside) -> Emitted:
        adapter = map(ord, each.prompt.adapter)
        new = words_after((*adapter, *each.prompt.token_ids, *each.prompt.begun, *each.out), 1)
        each.out += new
        finish, stops = None, each.prompt.params.stop
        text = self.text_of(each.out) if stops else ""  # long answers shall not take their length squared
        stopped = [stop for stop in stops if stop in text]
        if stopped:
            finish = FinishReason.STOP
        elif len(each.prompt.begun) + len(each.out) >= each.prompt.max_tokens:
            finish = FinishReason.LENGTH
        if finish is not None:
            del self.inside[key]
        shown = "" if stopped else self.text_of(new)
        return Emitted(key, shown, tuple(new), finish, each.cached, stopped_by=stopped[0] if stopped else None)


class PipelinedLlm(FakeLlm):
    """As on a GPU: what a step brought comes with the next, and a text that nobody reads as it comes at its end."""

    def __init__(self, shape: LlmShape = SHAPE, cost: CallCost | None = None) -> None:
        super().__init__(shape, cost)
        self._on_its_way: Step | None = None
        self._texts: dict[int, str] = {}  # of those whose text comes at their end

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        """It is in the next step."""
        super().add(key, prompt, live)
        self._texts.pop(key, None)
        if (prompt.whole or not live) and not prompt.params.stop:
            self._texts[key] = ""

    def abort(self, keys: Sequence[int]) -> None:
        """What is on its way for them is dropped."""
        super().abort(keys)
        if (step := self._on_its_way) is not None:
            self._on_its_way = replace(step, emitted=tuple(each for each in step.emitted if each.key not in keys))

    def step(self, prefill_tokens: int | None = None) -> Step:
        """Begins one, and ends the one before it."""
        began, self._on_its_way = self._on_its_way, super().step(prefill_tokens)
        ended = Step(kv_use=self._on_its_way.kv_use) if began is None else self._quiet(began)
        return replace(ended, begun=self._on_its_way.tokens)

    def _quiet(self, step: Step) -> Step:
        emitted, more = list[Emitted](), list[tuple[int, Sequence[int]]]()
        for each in step.emitted:
            if each.key not in self._texts:
                emitted.append(each)
                continue
            is_first = not self._texts[each.key]
            self._texts[each.key] += each.text
            if each.finish is not None:
                emitted.append(replace(each, text=self._texts.pop(each.key)))
            elif is_first:
                emitted.append(replace(each, text=""))
            else:
                more.append((each.key, each.token_ids))
        return replace(step, emitted=tuple(emitted), more=more)
