"""What steps of a language model cost here: prompts that are read, sequences that are decoded, and both at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median

from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams
from twoshift.llm_ports import LlmRuntime, Prompt, Step
from twoshift.policy.cost import Sample

__all__ = ["PromptIds", "StepSample", "measure_steps"]

_SHORTEST = 8  # tokens of a prompt
_CONTEXT = 320  # tokens that a sequence has before it, as typical ones have in the middle of their answers
_DECODE_STEPS = 6  # of each number of sequences, in a round
_USUAL_STEPS = 3  # that tell what a step takes which reads nothing
_READ_BESIDE = (64, 512)  # tokens of a prompt beside sequences that are decoded
_MOST_ROUNDS = 20
_FIRST_ID, _IDS = 100, 20_000  # tokens that are nothing special, as far as a vocabulary has so many


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step: how many sequences were decoded in it, and how many prompt tokens were read."""

    decoded: int
    read: int
    sample: Sample


def measure_steps(
    runtime: LlmRuntime, seconds: float = 20.0, progress: Callable[[float], None] = lambda share: None
) -> list[StepSample]:
    """Rounds over steps of every kind until the time is over, one at least; whoever calls this owns the runtime.

    In a thread, as the engine's loop runs in one: the same steps were seen to take longer in a process's main thread.
    """
    with ThreadPoolExecutor(1, "twoshift-measure") as thread:
        return thread.submit(_measured, runtime, seconds, progress).result()


def _measured(runtime: LlmRuntime, seconds: float, progress: Callable[[float], None]) -> list[StepSample]:
    bench, began_s, samples = _Bench(runtime), time.perf_counter(), list[StepSample]()
    bench.decode(1)  # what happens only the first time
    for _ in range(_MOST_ROUNDS):
        for run in bench.round():
            samples += run()
            progress(min(0.99, (time.perf_counter() - began_s) / seconds))
        if time.perf_counter() - began_s >= seconds:
            break
    if not samples:
        accepted = "a model that reports how long each engine step takes; this model reported no times"
        raise InvalidInput("model", runtime.info.model, accepted)
    progress(1.0)
    return samples


class PromptIds:
    """Prompts of tokens, none of which shares a beginning with any before it."""

    def __init__(self, vocabulary: int | None) -> None:
        vocabulary = vocabulary or _FIRST_ID + _IDS
        self._first = min(_FIRST_ID, vocabulary // 2)
        self._ids, self._number = min(_IDS, vocabulary - self._first), itertools.count()

    def next(self, length: int) -> tuple[int, ...]:
        """Of so many tokens; two at the least."""
        number, first, ids = next(self._number), self._first, self._ids
        head = (first + number % ids, first + number // ids % ids)
        return (*head, *(first + (number * 7 + at * 13) % ids for at in range(length - 2)))


class _Bench:
    """Fills a runtime that nothing else uses, and empties it again."""

    def __init__(self, runtime: LlmRuntime) -> None:
        self._runtime, self._keys = runtime, itertools.count()
        self._ids = PromptIds(runtime.shape.vocabulary)
        self._adapter = next(iter(runtime.info.adapters), "")  # a step with one takes longer than a step without
        shape = runtime.shape
        context = min(_CONTEXT, shape.context_tokens // 2, shape.kv_tokens // 4) // shape.block_tokens
        # What is decoded attends to it; all share it, so that it is read once
        self._before = self._ids.next(context * shape.block_tokens) if context else ()

    def round(self) -> Iterator[Callable[[], list[StepSample]]]:
        """Steps of every kind, from small to large."""
        shape = self._runtime.shape
        for count in _doubling(1, shape.max_sequences):
            yield lambda count=count: self.decode(count)
        for length in _doubling(2 * _SHORTEST, min(shape.step_tokens, shape.context_tokens - 1)):
            yield lambda length=length: self._read(length)
        for count in sorted({min(each, shape.max_sequences - 1) for each in (2, 16, shape.max_sequences // 4, 10**6)}):
            if count >= 1:
                yield lambda count=count: self._both(count)

    def decode(self, count: int) -> list[StepSample]:
        """Steps in which so many sequences get a token each."""
        with_prompts = self._decoding(count, 4 * _DECODE_STEPS + count)
        steps = [self._runtime.step() for _ in range(_DECODE_STEPS)]
        self._runtime.abort(with_prompts)
        return [each for step in steps if (each := _sampled(step, set())) is not None]

    def _read(self, length: int) -> list[StepSample]:
        """A step in which a prompt is read; between two such ones, where steps begin before others end."""
        keys = [self._add(length, 1)]
        step = self._runtime.step()
        if keys[0] not in step.tokens:
            for _ in range(2):
                keys.append(self._add(length, 1))
                step = self._runtime.step()
        self._runtime.abort(keys)
        sample = _sampled(step, set(keys))
        return [] if sample is None else [sample]

    def _both(self, count: int) -> list[StepSample]:
        """Steps in which so many sequences are decoded and a prompt is read, of several lengths."""
        most = min(self._runtime.shape.step_tokens - count, self._runtime.shape.context_tokens - 1)
        decoding = self._decoding(count, 16 * _DECODE_STEPS + count)
        found = [self._beside(length) for length in sorted({min(each, most) for each in _READ_BESIDE}) if length > 1]
        self._runtime.abort(decoding)
        return [each for each in found if each is not None]

    def _beside(self, length: int) -> StepSample | None:
        """A step that is begun while another one runs ends that one later: what its launch took is added to it."""
        steps = [self._runtime.step() for _ in range(_USUAL_STEPS)]
        usual_s = median(each.seconds or 0.0 for each in steps)
        key, before, step = self._add(length, 1), Step(), self._runtime.step()
        while key not in step.tokens:
            before, step = step, self._runtime.step()
        self._runtime.abort([key])
        sample = _sampled(step, {key})
        if sample is None or before.seconds is None:
            return sample
        launch_s = max(0.0, before.seconds - usual_s)
        return replace(sample, sample=replace(sample.sample, seconds=sample.sample.seconds + launch_s))

    def _decoding(self, count: int, max_tokens: int) -> list[int]:
        """So many whose prompts are read: the first alone, so that the others find the beginning in the cache."""
        keys = [self._add(_SHORTEST, max_tokens, self._before)]
        self._until_read(keys)
        keys += [self._add(_SHORTEST, max_tokens, self._before) for _ in range(count - 1)]
        self._until_read(keys[1:])
        return keys

    def _until_read(self, keys: list[int]) -> None:
        begun = set[int]()
        while not begun.issuperset(keys):
            begun |= {each.key for each in self._runtime.step().emitted}

    def _add(self, length: int, max_tokens: int, before: tuple[int, ...] = ()) -> int:
        key, token_ids = next(self._keys), (*before, *self._ids.next(length))
        params = GenerationParams(temperature=0.0, ignore_eos=True)
        self._runtime.add(key, Prompt(token_ids, params, max_tokens, adapter=self._adapter), live=False)
        return key


def _sampled(step: Step, reading: set[int]) -> StepSample | None:
    size = step.size
    if step.seconds is None or not size.rows:
        return None
    read = sum(tokens for key, tokens in step.tokens.items() if key in reading)
    sample = Sample(size.rows, size.tokens, size.longest, step.seconds, size.squares)
    return StepSample(len(step.tokens.keys() - reading), read, sample)


def _doubling(first: int, most: int) -> Iterator[int]:
    while first < most:
        yield first
        first *= 2
    if most >= 1:
        yield most
