"""A model in two versions behind a service, for rollouts to be tried on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from twoshift.engine import Engine
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.candidate import begin_candidate
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.http.app import App
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.oip import add_oip
from twoshift.serve.keys import Keys
from twoshift.serve.model import ServedModel
from twoshift.serve.service import Service

__all__ = ["Asking", "TwoVersions", "two_versions"]

_COST, _LIMITS = CallCost.line(0.001, 1e-5), LaneLimits(slo_s=600.0, max_rows=16)


class Times:
    """`x` times a factor; it raises where it is told to."""

    def __init__(self, factor: float) -> None:
        self.factor, self.error = factor, ""

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return ColumnRows.from_rows(rows)

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        if self.error:
            raise RuntimeError(self.error)
        return {"product": self.factor * columns["x"]}


def _served(version: int, model: Times) -> ServedModel:
    runtime = HostModel(RuntimeInfo(f"m:{version}", f"{version}", "python", "cpu", "fp32", 1, ()), model)
    engine = Engine(runtime, _COST, _LIMITS, max_waiting=64)
    return ServedModel("m", engine, lambda cost: derive(cost, _LIMITS, RowSize.uniform(1), 64))


class TwoVersions:
    """Version 1 doubles and answers; version 2 triples."""

    def __init__(self) -> None:
        self.models = Times(2.0), Times(3.0)
        self.stable, self.candidate = (_served(number, each) for number, each in enumerate(self.models, 1))
        self.service = Service(Deployments({"m": self.stable}))
        self.app = App(lambda fault: fault.message.encode(), Keys({}))
        add_oip(self.app, self.service)

    def run(self, asking: Callable[[Asking], Awaitable[None]]) -> None:
        """On a loop that serves."""

        async def serving() -> None:
            self.service.start()
            await asking(Asking(self))

        asyncio.run(serving())


class Asking:
    """On the loop."""

    def __init__(self, versions: TwoVersions) -> None:
        self.service, self.app = versions.service, versions.app
        self.deployment = self.service.find("m")
        self.split = begin_candidate(self.service, self.deployment, versions.candidate, "ro-1")

    async def ask(self, key: str | None = None, path: str = "/v2/models/m", body: Any = None) -> Reply:
        tensor = {"name": "x", "shape": [1], "datatype": "FP64", "data": [10.0]}
        told = json.dumps({"inputs": [tensor]} if body is None else body).encode()
        headers = {} if key is None else {b"x-route-key": key.encode()}
        return await self.app.handle(Request("POST", f"{path}/infer".encode(), headers, told, time.monotonic()))


@contextmanager
def two_versions() -> Iterator[TwoVersions]:
    made = TwoVersions()
    try:
        yield made
    finally:
        for each in (made.stable, made.candidate):
            each.close()
