"""The models of one process, whatever their requests come over."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from twoshift.errors import InvalidInput, Late, NotFound, TryLater
from twoshift.generation import GenerationRequest
from twoshift.serve.completions import Completions
from twoshift.serve.derived import Derived
from twoshift.serve.host import UNREAD, Host, Visit
from twoshift.serve.keys import ANYONE, Caller
from twoshift.serve.live_model import LiveModel, columns_of
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm.derived import LlmDerived
from twoshift.serve.llm.language_model import LanguageModel, is_language_model
from twoshift.serve.llm.running import Running
from twoshift.serve.model import Answer

__all__ = ["Service", "close_models"]

_logger = logging.getLogger("twoshift.serve")
_NOT_READY_S = 1.0
_WATCH_S = 1.0


class Service:
    """Requests to results, once each."""

    def __init__(self, models: Sequence[LiveModel]) -> None:
        self.models = {model.name: model for model in models}
        self._timeouts_s: dict[str, float] = {}  # of requests that bring none; followed by the watchdog
        self._completions: Completions | None = None
        self.host = Host()  # the loop that serves
        self._draining = False

    def start(self) -> None:
        """On the loop that will serve."""
        self._completions = Completions(self.host)
        for model in self.models.values():
            model.start(self._completions)
        self._follow_curves()

    def model_of(self, name: str | None) -> LiveModel | None:
        """The one of that name, or the only one; None where nobody can tell."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        return None if name is None else self.models.get(name)

    def timeout_s(self, model: LiveModel | None) -> float:
        """Of a request that brings none; the longest where its model is not known."""
        return max(self._timeouts_s.values()) if model is None else self._timeouts_s[model.name]

    def derived(self, model: LiveModel) -> Derived | LlmDerived:
        """What follows from its curve and from what its requests cost the host, as learned so far."""
        derived = model.derived_now()
        if isinstance(derived, LlmDerived):
            return derived
        return derived.with_host(self.host.request_s, model.rows_per_request)

    def enter(self, model: LiveModel, size: int, timeout_s: float | None, arrived_s: float) -> Visit:
        """Lets a request of so many bytes in, that was not looked at before; whoever gets this ends it.

        Raises TryLater where it would be too late, Late where it is.
        """
        now_s = time.monotonic()
        left_s = arrived_s + (self._timeouts_s[model.name] if timeout_s is None else timeout_s) - now_s
        if left_s <= 0:
            raise Late("its deadline passed before it could begin", begun=False)
        wait_s = self.host.wait_s(size, left_s, now_s, model)
        if wait_s is not None:
            rows = max(1, round(model.rows_per_request))
            model.metrics.offered_rows += rows
            model.metrics.refused_rows += rows
            least_s = min(wait_s, model.derived.slo_s)
            raise TryLater(UNREAD, self.host.retry_after_s(least_s))
        visit = Visit(self.host, size)
        visit.begin()
        return visit

    def find(self, name: str) -> LiveModel:
        """The model of that name; raises NotFound with the known ones."""
        model = self.models.get(name)
        if model is None:
            raise NotFound("model", name, f"one of {', '.join(sorted(self.models))}")
        return model

    def find_or_only(self, name: str | None, column: str | None = None) -> LiveModel:
        """The model of that name; without a name the only one, or the only one that answers with such a column.

        Raises NotFound, InvalidInput.
        """
        if name is not None:
            return self.find(name)
        found = [model for model in self.models.values() if column is None or column in columns_of(model)]
        if not found:
            raise InvalidInput("model", None, f"one with the output {column}, and none is served here")
        if len(found) != 1:
            raise InvalidInput("model", None, f"one of {', '.join(sorted(self.models))}")
        return found[0]

    def has_column(self, column: str) -> bool:
        """Whether a model may answer with it: what some do is not known before their first answer."""
        return any(column in columns_of(model) or not columns_of(model) for model in self.models.values())

    def language_model(self, name: str) -> LanguageModel:
        """The one of that name; raises NotFound, and InvalidInput where it is another kind of model."""
        model = self.find(name)
        if not is_language_model(model):
            raise InvalidInput("model", name, "a model that generates text")
        return model

    async def generate(
        self,
        model: LanguageModel,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        caller: Caller = ANYONE,
    ) -> Running:
        """Sequences that have begun: whoever gets them closes them. Raises as the model does, Forbidden, OverLimit."""
        if self._draining:
            raise TryLater("the server is shutting down", _NOT_READY_S)
        caller.enter(model.name)
        model.metrics.offered_rows += len(rows)
        try:
            return await model.begin(rows, timeout_s, arrived_s, caller.leave, caller.tenant)
        except BaseException as error:
            caller.leave()
            if isinstance(error, TryLater) and (timeout_s is None or timeout_s >= model.derived.slo_s):
                model.metrics.refused_rows += len(rows)
            raise

    async def answer(
        self,
        model: LiveModel,
        rows: Sequence[Any],
        timeout_s: float | None,
        arrived_s: float,
        caller: Caller = ANYONE,
        visit: Visit | None = None,
    ) -> Answer:
        """Within the timeout, or the objective where it can be kept; raises as the model does, Forbidden, OverLimit."""
        if self._draining:
            raise TryLater("the server is shutting down", _NOT_READY_S)
        had_s = self._timeouts_s[model.name] if timeout_s is None else timeout_s
        caller.enter(model.name)
        metrics, slo_s = model.metrics, model.derived.slo_s
        metrics.offered_rows += len(rows)
        if visit is not None:
            visit.reserve(had_s)
        try:
            return await model.answer(LiveRequest(rows, arrived_s + had_s, arrived_s, caller.tenant, visit))
        except (TryLater, Late) as error:
            told = self._refusal(error, model, len(rows), had_s >= slo_s)
            if told is error:
                raise
            raise told from error
        finally:
            caller.leave()

    def _refusal(self, error: TryLater | Late, model: LiveModel, rows: int, promised: bool) -> TryLater | Late:
        """As the caller gets it; `promised`: it had the time of the objective."""
        slo_s, host = model.derived.slo_s, self.host
        if promised:  # in less time than that nobody has promised it
            model.metrics.refused_rows += rows
            if isinstance(error, Late) and error.begun:
                host.policy.was_late(slo_s, time.monotonic())
            elif isinstance(error, Late):  # nothing is wrong with its time: there was too much to do
                error = TryLater("the queue was too long to begin with it in time", slo_s)
        if type(error) is TryLater:
            return TryLater(str(error), host.retry_after_s(error.retry_after_s), error.for_clients)
        return error

    def unready(self, name: str | None = None) -> str | None:
        """Why no request should come here, or to one model; None where all is well."""
        if self._draining:
            return "the server is shutting down"
        for model in self.models.values() if name is None else [self.find(name)]:
            health = model.health()
            if not health.healthy:
                return f"{model.name}: {health.reason}"
        return None

    def warnings(self) -> list[str]:
        """What its models cannot keep, as far as is known now."""
        derived = [(name, model.derived_now()) for name, model in self.models.items()]
        return [f"{name}: {each.warning}" for name, each in derived if isinstance(each, Derived) and each.warning]

    def _follow_curves(self) -> None:
        per_s = 0.0
        for name, model in self.models.items():
            derived = self.derived(model)
            self._timeouts_s[name] = derived.timeout_s if isinstance(derived, Derived) else derived.slo_s
            if isinstance(derived, Derived):
                per_s += derived.capacity_rows_per_s / model.rows_per_request
        self.host.policy.capacity_per_s = per_s

    async def watch(self) -> None:
        """The watchdog: says in the log when readiness is lost, why, and when it is back. Until it is cancelled."""
        before: str | None = None
        while True:
            await asyncio.sleep(_WATCH_S)
            self._follow_curves()
            now = self.unready()
            if now is not None and before is None:
                _logger.error("not ready: %s", now)
            elif now is None and before is not None:
                _logger.warning("ready again")
            before = now

    def drain(self) -> None:
        """Take nothing new; what was admitted is answered."""
        self._draining = True

    def close(self) -> None:
        """Let the models go."""
        close_models([*self.models.values()], None)


def close_models(models: Sequence[LiveModel], timeout_s: float | None) -> bool:
    """Let them go, side by side; False where one has not gone in time: its call or its code does not come back."""
    failures = list[Exception]()

    def close(model: LiveModel) -> None:
        try:
            model.close()
        except Exception as error:  # a user's own code may raise anything
            failures.append(error)

    threads = [threading.Thread(target=close, args=(model,), daemon=True) for model in models]
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
    if failures:
        raise failures[0]
    return not any(thread.is_alive() for thread in threads)
