"""Classes whose cost is known: one that the host is busy with, one that the device is busy with."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

_CALL_S, _ROW_S = 0.004, 0.001
_NUMBERS = 8


class _Texts:
    outputs = ("embedding",)
    example = "a red fox"

    def load(self) -> None:
        """Nothing to load."""

    def prepare(self, rows: list[Any]) -> dict[str, Any]:
        texts = [row["text"] if isinstance(row, dict) else row for row in rows]
        return {"size": np.array([len(text) for text in texts], np.float32)}

    def predict(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"embedding": np.repeat(batch["size"][:, None], _NUMBERS, 1)}


class Echo(_Texts):
    """A call takes next to nothing: requests, JSON and replies are all there is."""


class Slow(_Texts):
    """A call takes 4 ms and 1 ms a row, and leaves the interpreter to others meanwhile, as a device does."""

    def predict(self, batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(_CALL_S + _ROW_S * len(batch["size"]))
        return super().predict(batch)
