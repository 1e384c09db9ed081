"""Requests to results, whatever they came over: admitted, prepared, answered inside their deadline, once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from twoshift.engine import Engine, RowFuture, RowResult
from twoshift.errors import Broken, InvalidInput, Late, TooLarge, TryLater
from twoshift.ports import Prepared
from twoshift.serve.completions import Completions
from twoshift.serve.derived import Derived
from twoshift.serve.metrics import ModelMetrics
from twoshift.serve.stages import Stages

__all__ = ["Answer", "ServedModel", "Service"]

_INLINE_CHARACTERS = 2_000  # of a request's texts that are prepared on the loop: a thread costs more than they do
_NOT_READY_S = 1.0


@dataclass(slots=True)
class Answer:
    """A request's results, a row each, in its order."""

    rows: list[RowResult]
    tokens: int
    truncated: int
    stages: Stages


class ServedModel:
    """A model, the engine that owns its device, and what follows from its objective."""

    def __init__(self, name: str, engine: Engine, derived: Derived, created_unix_s: int) -> None:
        self.name, self.engine, self.derived, self.created_unix_s = name, engine, derived, created_unix_s
        self.metrics = ModelMetrics()
        self._threads = ThreadPoolExecutor(2, f"twoshift-prepare-{name}")

    @property
    def longest_wait_s(self) -> float:
        """After which a row that still waits, or a call that still runs, means that something is stuck."""
        return max(5.0, 20 * self.derived.slo_s)

    async def answer(
        self, rows: Sequence[Any], deadline_s: float, completions: Completions, arrived_s: float
    ) -> Answer:
        """The results; raises InvalidInput, TooLarge, TryLater, Late, Broken, or what the model raised for a row."""
        began_s = time.monotonic()
        self._admit(rows)
        stages = Stages(admit=time.monotonic() - arrived_s)
        prepared = await self._prepared(rows)
        stages.prepare = (queued_s := time.monotonic()) - began_s
        futures = self.engine.submit(prepared, deadline_s)
        try:
            await _within(completions.all_of(futures), deadline_s - queued_s)
        except BaseException:  # nobody waits any more: what is not on the device yet never will be
            for future in futures:
                future.cancel()
            raise
        results = _results(futures)
        ended_s = time.monotonic()
        stages.forward = max(result.forward_s for result in results)
        stages.queue = max(0.0, ended_s - queued_s - stages.forward)
        stages.call_rows = max(result.call_rows for result in results)
        stages.finish = -ended_s  # until the reply is made
        return Answer(results, int(prepared.lengths.sum()), int(prepared.truncated.sum()), stages)

    def close(self) -> None:
        """Let the model go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.engine.close()

    def _admit(self, rows: Sequence[Any]) -> None:
        if not rows:
            raise InvalidInput("input", rows, "at least one row")
        if len(rows) > self.engine.most_rows:
            raise TooLarge("input", f"{len(rows):,} rows", f"at most {self.engine.most_rows:,} in a request")

    async def _prepared(self, rows: Sequence[Any]) -> Prepared:
        size = sum(len(row) if isinstance(row, str) else _INLINE_CHARACTERS for row in rows)
        if size < _INLINE_CHARACTERS:
            return self.engine.runtime.prepare(rows)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.engine.runtime.prepare, rows)


class Service:
    """The models of one process."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = {model.name: model for model in models}
        self._completions: Completions | None = None
        self._draining = False

    def start(self) -> None:
        """On the loop that will serve."""
        self._completions = Completions()

    def model(self, name: str) -> ServedModel:
        """The model of that name; raises InvalidInput with the known ones."""
        found = self.models.get(name)
        if found is None:
            raise InvalidInput("model", name, f"one of {', '.join(sorted(self.models))}")
        return found

    async def answer(
        self, model: ServedModel, rows: Sequence[Any], timeout_s: float | None, arrived_s: float
    ) -> Answer:
        """Within the timeout, or within the model's objective."""
        if self._draining:
            raise TryLater("the server is shutting down", _NOT_READY_S)
        assert self._completions is not None  # noqa: S101 - start made it
        deadline_s = arrived_s + (model.derived.slo_s if timeout_s is None else timeout_s)
        return await model.answer(rows, deadline_s, self._completions, arrived_s)

    def unready(self) -> str | None:
        """Why no request should come here; None where all is well."""
        if self._draining:
            return "draining"
        for name, model in self.models.items():
            health = model.engine.health(model.longest_wait_s)
            if not health.healthy:
                return f"{name}: {health.reason}"
        return None

    def drain(self) -> None:
        """Take nothing new; what was admitted is answered."""
        self._draining = True

    def close(self) -> None:
        """Let the models go."""
        for model in self.models.values():
            model.close()


def _results(futures: Sequence[RowFuture]) -> list[RowResult]:
    results = []
    for place, future in enumerate(futures):
        error = future.exception()
        if error is None:
            results.append(future.result())
        elif isinstance(error, TryLater | Late | Broken | InvalidInput) or len(futures) == 1:
            raise error
        else:
            raise InvalidInput(f"row {place}", "it", f"one that the model takes: {type(error).__name__}: {error}")
    return results


async def _within(done: asyncio.Future[None], timeout_s: float) -> None:
    """Raises Late where it is not done in time."""
    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_s), _expire, done)
    try:
        await done
    finally:
        timer.cancel()


def _expire(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(Late("it was not answered by its deadline"))
