"""A language model that a worker's rows run on, and what the first of them take."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from twoshift.batch.json_answers import AnswerSchema
from twoshift.batch.messages import Calibrated
from twoshift.batch.parity_report import RECEIPT_PROMPTS
from twoshift.batch.result_columns import result_array
from twoshift.engine.llm import LlmEngine
from twoshift.engine.prepare import prepared_parts
from twoshift.engine.results import BlockResult
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import described
from twoshift.generation import FinishReason
from twoshift.llm_ports import Prompt, Prompts, QualityReport
from twoshift.policy.plan.generation import (
    Conversation,
    GenerationRate,
    fitting_sequences,
    generation_rate,
    together_s,
)
from twoshift.ports import RuntimeInfo

__all__ = ["LlmDevice"]

_SAMPLE_ROWS, _SAMPLE_TOKENS = 8, 32


class LlmDevice:
    """Behind an engine: a worker's own, which ends with it, or one that also serves, where an owner pays."""

    padding_tokens = 0  # sequences are packed
    row_preparer = None  # prompts are read where they run

    def __init__(
        self, engine: LlmEngine, owner: BlockOwner | None = None, quality: QualityReport | None = None
    ) -> None:
        self._engine, self._owner, self._quality = engine, owner, quality

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self._engine.runtime.info

    def calibrate(self, rows: Sequence[Any]) -> Calibrated:
        """What rows take where the device is full of them, from the first few and the beginnings of their answers."""
        found, error, error_place = self._prompts(rows)
        if not found:
            return Calibrated(0.01, None, error, error_place=error_place)
        prompts = list(found.values())
        began_s = time.monotonic()
        first = BlockOwner(deadline_s=0.0)  # before those of all jobs that are measured already
        result = self._engine.submit_block(Prompts(tuple(_shortened(each) for each in prompts)), owner=first).result()
        if self._owner is not None:
            self._owner.had(0, 0, result.device_s, riding=False)  # time that it has had, for rows that count later
        took_s = time.monotonic() - began_s if self._owner is None else result.device_s
        if len(result.errors) == len(prompts):
            failed = min(result.errors)
            return Calibrated(0.01, None, described(result.errors[failed]), error_place=list(found)[failed])
        rate, recheck_s = self._rate(prompts, result, took_s)
        return Calibrated(
            max(1e-9, 1.0 / rate.answers_per_s), self._schema(prompts, result), error, error_place=error_place,
            quality=self._quality, recheck_s=recheck_s,
        )  # fmt: skip

    def begin(self, seconds_per_row: float) -> LlmEngine:
        """The engine; it needs to know nothing."""
        return self._engine

    def close(self) -> None:
        """Give the device back, if it is ours."""
        if self._owner is None:
            self._engine.close()

    def _prompts(self, rows: Sequence[Any]) -> tuple[dict[int, Prompt], str | None, int]:
        """The first rows that the model takes, by place; why the first other one is none, and its place."""
        found, error, error_place = dict[int, Prompt](), None, 0
        for start, part in prepared_parts(self._engine.runtime.prepare, rows[: 4 * _SAMPLE_ROWS]):
            if isinstance(part, Exception):
                error, error_place = (error, error_place) if error else (described(part), start)
            elif isinstance(part, Prompts):
                found |= dict(enumerate(part.prompts, start))
        return dict(itertools.islice(found.items(), _SAMPLE_ROWS)), error, error_place

    def _rate(self, prompts: Sequence[Prompt], result: BlockResult, took_s: float) -> tuple[GenerationRate, float]:
        """What the device gives such rows where as many as fit are on it, by its curve and by what these took.

        And the seconds of the few that are answered again when the job is done.
        """
        cost, shape, rows = self._engine.cost(), self._engine.runtime.shape, len(prompts)
        cached = result.cached_tokens / rows
        read, seen = fmean(len(each.token_ids) for each in prompts) - cached, result.output_tokens / rows
        sample = Conversation(max(1.0, read), max(1.0, seen))
        asked = Conversation(sample.prompt_tokens, sample.answer_tokens * _whole_answers(prompts, result), cached)
        said_s = together_s(cost, sample, rows, shape.step_tokens)
        slower = cost.scaled(took_s / said_s) if took_s > 0 else cost
        many = max(rows, fitting_sequences(shape.kv_tokens, asked, shape.max_sequences))
        rate = generation_rate(slower, asked, min(many, shape.max_sequences), shape.step_tokens)
        return rate, together_s(slower, asked, RECEIPT_PROMPTS, shape.step_tokens)

    def _schema(self, prompts: Sequence[Prompt], result: BlockResult) -> bytes:
        columns, schema = dict(result.columns), prompts[0].params.json_schema
        if schema is not None:
            columns |= AnswerSchema(schema).columns(columns["text"], range(len(prompts)))[0]
        nowhere = np.zeros(len(prompts), np.bool_)
        fields = [pa.field(name, result_array(values, nowhere).type) for name, values in columns.items()]
        return pa.schema(fields).serialize().to_pybytes()


def _shortened(prompt: Prompt) -> Prompt:
    return replace(prompt, max_tokens=min(_SAMPLE_TOKENS, prompt.max_tokens))


def _whole_answers(prompts: Sequence[Prompt], result: BlockResult) -> float:
    """How much longer the answers are than what was seen of them, at the most."""
    whole = [
        prompt.max_tokens if finish == FinishReason.LENGTH else int(tokens)
        for prompt, finish, tokens in zip(
            prompts, result.columns["finish_reason"], result.columns["output_tokens"], strict=True
        )
    ]
    return max(1.0, sum(whole) / max(1, int(result.columns["output_tokens"].sum())))
