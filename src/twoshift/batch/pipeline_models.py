"""What runs the batches of somebody else's pipeline: a model of rows, or a language model and its prompts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twoshift.batch.json_answers import AnswerSchema
from twoshift.batch.prompting import Prompting
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.engine import Engine
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.llm import LlmEngine
from twoshift.engine.llm.sequences import answer_columns
from twoshift.engine.window import Window
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import FinishReason
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.runtime.llm import LlmOptions, is_llm, load_llm
from twoshift.runtime.load import check_named, load_model

__all__ = ["GENERATION", "PipelineModel", "opened_model", "plain_options"]

GENERATION = (
    "prompt",
    "system",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "json_schema",
    "batch_invariant",
)
_LOADING = ("device", "precision", "threads")
_UNKNOWN = CallCost.line(0.01, 1e-4)  # before anything was measured; the engine learns the rest
_MOST_CALL_ROWS = 256
_NOWHERE = {"inputs": ("batches",), "output": "batches"}  # a pipeline has its own
_Batch = Mapping[str, NDArray[Any]]
_Columns = dict[str, NDArray[Any]]


class PipelineModel(Protocol):
    """A model behind an engine of its own."""

    @property
    def engine(self) -> BlockEngine: ...

    @property
    def known(self) -> _Columns:
        """An empty array of each result column, where those are known before the first row."""
        ...

    def begun(self, batch: _Batch) -> Window:
        """Its rows with the engine; raises InvalidInput where a column is missing."""
        ...

    def columns(self, window: Window) -> _Columns:
        """The results in the order of the batch, masked where there is no value; waits for them."""
        ...


def opened_model(
    model: str, text: str | None, pair: str | None, columns: Sequence[str], options: Mapping[str, Any]
) -> PipelineModel:
    """The model that `model` names, loaded; raises InvalidInput where it or an option cannot be used."""
    if is_llm(model):
        return _Prompts(_settings(model, text, pair, columns, options))
    check_named(model)
    for name in GENERATION:
        if name in options:
            raise Inapplicable(name, options[name], f"because {model} is not a language model")
    return _Rows(model, text, pair, columns, options)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same with values that can be compared: a schema as JSON, lists as tuples."""
    return {
        name: json.dumps(value) if isinstance(value, Mapping) else tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
    }


def _settings(
    model: str, text: str | None, pair: str | None, columns: Sequence[str], options: Mapping[str, Any]
) -> JobSettings:
    """As a job over these batches would have them."""
    for name, value in options.items():
        if name not in (*GENERATION, *_LOADING):
            raise InvalidInput(name, value, f"one of the options keep, {', '.join((*GENERATION, *_LOADING))}")
    given = {"text": text, "pair": pair, "columns": tuple(columns), **plain_options(options)}
    told = {name: value for name, value in given.items() if value is not None}
    settings = make_settings({**_NOWHERE, "model": model, **told})
    settings.check_model(is_llm=True)
    return settings


class _Rows:
    """Texts, pairs, or named values."""

    def __init__(
        self, model: str, text: str | None, pair: str | None, columns: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        if pair is not None and text is None:
            raise Inapplicable("pair", pair, "without `text`, the name of the column with the first text")
        if text is not None and columns:
            raise Inapplicable("columns", columns, "with `text`: give either `text` or `columns`")
        self._texts = tuple(name for name in (text, pair) if name is not None)
        self._columns = tuple(columns)
        self.engine = Engine(load_model(model, **options), _UNKNOWN, LaneLimits(max_rows=_MOST_CALL_ROWS))
        self.known: _Columns = {}

    def begun(self, batch: _Batch) -> Window:
        """Their rows with the engine; a missing text is an error of its row."""
        rows = self._rows(batch)
        window = Window(len(rows))
        for place, row in enumerate(rows):
            if row is None:
                window.fail(place, "the text is null", "null")
        window.submit(self.engine, rows)
        return window

    def columns(self, window: Window) -> _Columns:
        """As the model returns them."""
        return window.columns()

    def _rows(self, batch: _Batch) -> list[Any]:
        """As the model takes them: texts, pairs or dicts; None where a text is missing."""
        names = self._texts or self._columns or tuple(batch)
        _check_columns(names, batch)
        values = [list(batch[name]) if batch[name].ndim > 1 else batch[name].tolist() for name in names]
        rows = zip(*values, strict=True)
        if not self._texts:
            if self._columns and self.engine.runtime.info.is_ordered:
                return [[*row] for row in rows]
            return [dict(zip(names, row, strict=True)) for row in rows]
        good = (row if all(isinstance(each, str) for each in row) else None for row in rows)
        return [row[0] if row is not None and len(row) == 1 else row for row in good]


class _Prompts:
    """Prompts of a language model; nobody waits for a first token, so the whole device is theirs."""

    def __init__(self, settings: JobSettings) -> None:
        assert settings.prompting is not None  # noqa: S101 - `check_model` was here
        self._prompting: Prompting = settings.prompting
        self._answers = None if settings.json_schema is None else AnswerSchema(settings.json_schema)
        options = LlmOptions(
            settings.device, settings.precision, settings.threads, batch_invariant=settings.batch_invariant
        )
        self.engine = LlmEngine(load_llm(settings.model, options), _UNKNOWN, serves=False)
        empty = {name: values[:0] for name, values in answer_columns("", FinishReason.STOP, 0).items()}
        self.known: _Columns = empty | self._read(empty["text"], ())[0]

    def begun(self, batch: _Batch) -> Window:
        """Their prompts with the engine; a null that the prompt uses is an error of its row."""
        names = self._prompting.columns
        _check_columns(names, batch)
        rows = [
            dict(zip(names, row, strict=True)) for row in zip(*(_cells(batch[name]) for name in names), strict=True)
        ]
        requests = [self._prompting.request(row) for row in rows]
        window = Window(len(rows))
        for place, request in enumerate(requests):
            if request is None:
                missing = next(name for name in names if rows[place][name] is None)
                window.fail(place, f"column {missing}, which the prompt uses, is null", "null")
        window.submit(self.engine, requests)
        return window

    def columns(self, window: Window) -> _Columns:
        """Answers, and with a schema what they say; one that does not keep to it is an error of its row."""
        values = window.columns()
        if "text" not in values:
            return values
        read, unreadable = self._read(values["text"], window.errors)
        for place, error in unreadable.items():
            window.fail(place, error, "no JSON")
        return values | read

    def _read(self, texts: NDArray[Any], failed: Mapping[int, str] | Sequence[int]) -> tuple[_Columns, dict[int, str]]:
        return ({}, {}) if self._answers is None else self._answers.columns(texts, failed)


def _check_columns(names: Sequence[str], batch: _Batch) -> None:
    if missing := [name for name in names if name not in batch]:
        raise InvalidInput("column", missing[0], f"one of the columns {', '.join(batch)}")


def _cells(values: NDArray[Any]) -> list[Any]:
    """Values as a prompt shows them; None where NumPy has a NaN or a NaT for one that is missing."""
    if values.dtype.kind in "mM":
        values = values.astype(f"{values.dtype.kind}8[us]")  # nanoseconds would be whole numbers
    return [_cell(each) for each in (values if values.ndim > 1 else values.tolist())]


def _cell(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value
