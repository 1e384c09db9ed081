"""A small model behind a service, for faces to be tried on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.model import ServedModel
from twoshift.serve.service import Service

MOST_ROWS = 64
_COST = CallCost.line(0.001, 1e-5)
_LIMITS = LaneLimits(slo_s=600.0, max_rows=16)  # no gate stays closed for that long


class Doubling:
    """`x`, doubled, and how long the `word` beside it is; everybody waits while the gate is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = self.seen = 0  # rows before the gate and behind it

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self.begun += len(columns["x"])
        self.gate.wait(120)
        self.seen += len(columns["x"])
        words = columns.get("word", np.full(len(columns["x"]), "", object))
        return {"double": 2 * columns["x"], "echo": words}


@contextmanager
def doubling_service() -> Iterator[tuple[Service, Doubling]]:
    """The service, not started, with the model `m`."""
    model = Doubling()
    runtime = HostModel(RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, ()), model)
    engine = Engine(runtime, _COST, _LIMITS, max_waiting=MOST_ROWS)
    served = ServedModel("m", engine, lambda cost: derive(cost, _LIMITS, RowSize.uniform(1), MOST_ROWS))
    service = Service(Deployments({"m": served}))
    try:
        yield service, model
    finally:
        model.gate.set()
        service.close()
