"""A model of a given time a row, as a device that leaves the cores alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

ROW_S = 25e-6


class Square:
    """x squared."""

    outputs = ("squared",)

    def load(self) -> None:
        """Nothing to load."""

    def predict(self, batch: dict[str, Any]) -> dict[str, Any]:
        x = np.asarray(batch["x"], np.float64)
        until_s = time.perf_counter() + ROW_S * len(x)
        time.sleep(max(0.0, until_s - time.perf_counter()))
        return {"squared": x * x}
