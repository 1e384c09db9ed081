"""Rows of named values, as a job reads them from files: any model that scores rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from twoshift.endpoints.facts import ModelFacts, Row
from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.types import ScoreReply, ScoreRequest
from twoshift.errors import BrokenModel, InvalidInput, UnusableModel

__all__ = ["SCORE", "ScoreCall", "plain", "read_score"]

SCORE = "/v1/score"
_GENERATED = "finish_reason"  # an output of every language model
_TEXT, _PAIR = ("text",), ("query", "text")
_requests, _encoder = msgspec.json.Decoder(ScoreRequest), msgspec.json.Encoder()


def read_score(body: bytes | memoryview) -> ScoreRequest:
    """A request's body; raises InvalidInput."""
    return asked_of(_requests, body)


class ScoreCall:
    """A request with rows of named values; raises InvalidInput where a row is none."""

    def __init__(self, asked: ScoreRequest, model: ModelFacts) -> None:
        self._name, self._classes = model.name, model.classes
        if _GENERATED in model.outputs:
            todo = "use the model with /v1/completions, or name a model that scores rows"
            raise UnusableModel("model", model.name, f"generates text; {todo}")
        if not asked.rows:
            raise InvalidInput("rows", [], "at least one row")
        texts = tuple(each.name for each in model.inputs if each.dtype == "text" and not each.shape)
        of_texts = texts if len(texts) == len(model.inputs) and texts in (_TEXT, _PAIR) else ()
        self.rows: list[Any] = [_row(row, of_texts, place) for place, row in enumerate(asked.rows)]
        self._outputs: tuple[str, ...] = tuple(model.outputs)

    def reply(self, rows: Sequence[Row], tokens: int) -> bytes:
        """Every output of each row, and beside them the names of classes."""
        outputs = self._outputs or tuple(getattr(rows[0], "columns", ()))
        scored = [{name: plain(row[name], name, place) for name in outputs} for place, row in enumerate(rows)]
        classes = {name: list(names) for name, names in self._classes.items()}
        return _encoder.encode(ScoreReply(self._name, scored, classes))


def _row(row: Mapping[str, Any], texts: tuple[str, ...], place: int) -> Any:
    """As the model takes it; other fields than a model of texts has are let pass, as the columns of a file are."""
    for name in texts:
        if not isinstance(row.get(name), str):
            raise InvalidInput(f"rows[{place}].{name}", row.get(name), "a string")
    values = tuple(row[name] for name in texts)
    return (values[0] if len(values) == 1 else values) if texts else row


def plain(value: Any, name: str, place: int) -> Any:
    """A value as JSON has it; raises BrokenModel for NaN and infinities."""
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BrokenModel(f"the model's output `{name}` for row {place} contains NaN or infinity")
    plain = array.tolist()
    return plain.decode(errors="replace") if isinstance(plain, bytes) else plain
