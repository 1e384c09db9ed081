"""The models of one process, whatever their requests come over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from twoshift.errors import Asleep, InvalidInput, Late, Malformed, TryLater, TwoshiftError
from twoshift.generation import GenerationRequest
from twoshift.serve.completions import Completions
from twoshift.serve.deployments import Deployment, Deployments, Serving, columns_of
from twoshift.serve.derived import Derived
from twoshift.serve.host import UNREAD, Host, HostFacts, Visit
from twoshift.serve.keyed import AnswersByKey
from twoshift.serve.keys import ANYONE, Caller
from twoshift.serve.live_model import LiveModel
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm.language_model import is_language_model
from twoshift.serve.llm.running import Running
from twoshift.serve.llm_derived import LlmDerived
from twoshift.serve.model import Answer
from twoshift.serve.tracing import Traces

__all__ = ["Fronts", "Repository", "Service", "close_models"]

_logger = logging.getLogger("twoshift.serve")
_NOT_READY_S = 1.0
_WATCH_S = 1.0
_LONGEST_WAIT_S = 60.0  # that somebody is told to wait


class Repository(Protocol):
    """Loads and unloads deployments; the futures say how that ended. Raises NotFound at once."""

    def load(self, name: str) -> Future[None]: ...

    def unload(self, name: str) -> Future[None]: ...


class Fronts(Protocol):
    """Front processes, which take live requests in place of this one."""

    def hosts(self) -> list[HostFacts]:
        """How each is."""
        ...

    async def refresh(self) -> None:
        """Until what they have counted by now is known here."""
        ...

    @property
    def request_s(self) -> float:
        """What a request costs, of the time of all of them together; 0 before there were enough to tell."""
        ...

    def costs(self) -> dict[str, float]:
        """As `Host.costs`, of one of them."""
        ...

    def rows_per_request(self, deployment: str) -> float:
        """On the average, of late."""
        ...


class Service:
    """Requests to results, once each."""

    def __init__(self, models: Deployments) -> None:
        self.models = models
        self.fronts: Fronts | None = None  # None: live requests come to this process
        self.sharers = 1  # processes among which they are dealt out, where this is one of those
        self._longest_timeout_s = 1.0  # of requests that bring none
        self.completions: Completions | None = None  # once it has started
        self.host = Host()  # the loop that serves
        self.traces: Traces | None = None
        self.precomputed: Callable[[str], AnswersByKey | None] = lambda _: None  # by the name of a deployment
        self.repository: Repository | None = None  # who loads and unloads deployments
        self.is_opening = False  # its front takes no requests yet
        self.is_started = False  # every deployment of the start is loaded, or has failed
        self._draining = False

    def start(self) -> None:
        """On the loop that will serve."""
        self.completions = Completions(self.host)
        for model in self.models.values():
            self.deploy(model, model.backend)

    def deploy(self, deployment: Deployment, backend: LiveModel) -> Serving | None:
        """This backend answers from now on; what did before. On the loop that serves."""
        assert self.completions is not None  # noqa: S101 - start made it
        backend.start(self.completions)
        deployment.traces = self.traces
        before = self.models.serve(deployment, backend)
        self.follow_curves()
        return before

    def model_of(self, name: str | None) -> Deployment | None:
        """The one of that name, or the only one; None where nobody can tell."""
        return self.models.only if name is None else self.models.get(name)

    def timeout_s(self, model: Deployment | None) -> float:
        """Of a request that brings none; the longest where its model is not known."""
        return self._longest_timeout_s if model is None else model.patience_s

    def derived(self, model: Deployment) -> Derived | LlmDerived:
        """What follows from its curve and from what its requests cost the host, as learned so far."""
        derived = model.derived_now()
        if isinstance(derived, LlmDerived):
            return derived
        request_s = self.host.request_s / self.sharers if self.fronts is None else self.fronts.request_s
        return derived.with_host(request_s, self._rows_per_request(model))

    def _rows_per_request(self, model: Deployment) -> float:
        return model.rows_per_request if self.fronts is None else self.fronts.rows_per_request(model.name)

    def host_costs(self) -> dict[str, float]:
        """What requests cost the host, as learned; as the simulator takes it."""
        return self.host.costs() if self.fronts is None else self.fronts.costs()

    async def refresh(self) -> None:
        """Until everything that was counted is known here."""
        if self.fronts is not None:
            await self.fronts.refresh()

    def device_requests_per_s(self) -> float:
        """That the devices could answer, whatever is in front of them."""
        found = [(each, each.derived) for each in self.models.values()]  # as they began: without any host's share
        return sum(
            derived.capacity_rows_per_s / self._rows_per_request(model)
            for model, derived in found
            if isinstance(derived, Derived)
        )

    def enter(self, model: Deployment, size: int, timeout_s: float | None, arrived_s: float) -> Visit:
        """Lets a request of so many bytes in, that was not looked at before; whoever gets this ends it.

        Raises TryLater where it would be too late, Late where it is.
        """
        now_s = time.monotonic()
        left_s = arrived_s + (model.patience_s if timeout_s is None else timeout_s) - now_s
        if left_s <= 0:
            raise Late("the deadline passed before the request could start", begun=False)
        wait_s = self.host.wait_s(size, left_s, now_s, None if model.may_skip_device else model)
        if wait_s is not None:
            rows = max(1, round(model.rows_per_request))
            model.metrics.offered_rows += rows
            model.metrics.refused_rows += rows
            least_s = min(wait_s, model.derived.slo_s)
            raise TryLater(UNREAD, self.host.retry_after_s(least_s))
        visit = Visit(self.host, size)
        visit.begin()
        return visit

    def find(self, name: str) -> Deployment:
        """The model of that name; raises NotFound with the known ones, TryLater where it does not answer."""
        return self.models.find(name)

    def find_or_only(self, name: str | None, column: str | None = None) -> Deployment:
        """The model of that name; without a name the only one, or the only one that answers with such a column.

        Raises NotFound, InvalidInput, TryLater.
        """
        if name is not None:
            return self.find(name)
        found = [model for model in self.models.values() if column is None or column in columns_of(model)]
        if not found:
            raise Malformed("model", f"a model with the output `{column}`; no model of this server has this output")
        if len(found) != 1:
            raise InvalidInput("model", None, f"one of these models: {', '.join(sorted(self.models))}")
        return found[0]

    def has_column(self, column: str) -> bool:
        """Whether a model may answer with it: what some do is not known before their first answer."""
        return any(column in columns_of(model) or not columns_of(model) for model in self.models.values())

    def language_model(self, name: str) -> Deployment:
        """The one of that name; raises NotFound, and InvalidInput where it is another kind of model."""
        model = self.find(name)
        if not is_language_model(model.backend):
            raise InvalidInput("model", name, "a model that generates text")
        return model

    async def generate(
        self,
        model: Deployment,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        caller: Caller = ANYONE,
    ) -> Running:
        """Sequences that have begun: whoever gets them closes them. Raises as the model does, Forbidden, OverLimit."""
        if self._draining:
            raise TryLater("the server is shutting down", _NOT_READY_S)
        serving = self._entered(model, caller, rows[0].adapter)

        def leave() -> None:
            serving.inside -= 1
            caller.leave()

        model.metrics.offered_rows += len(rows)
        try:
            assert is_language_model(serving.backend)  # noqa: S101 - `language_model` has looked
            running = await serving.backend.begin(rows, timeout_s, arrived_s, leave, caller.tenant)
        except BaseException as error:
            leave()
            is_refusal = isinstance(error, TryLater) and not isinstance(error, Asleep)
            if is_refusal and (timeout_s is None or timeout_s >= model.derived.slo_s):
                model.metrics.refused_rows += len(rows)
            raise
        running.version, split = serving.version, model.split
        if split is not None and split.shadow is not None and model is split.stable:
            running.copy_to(partial(split.shadow.offer_texts, rows))
        return running

    async def answer(
        self,
        model: Deployment,
        rows: Sequence[Any],
        timeout_s: float | None,
        arrived_s: float,
        caller: Caller = ANYONE,
        visit: Visit | None = None,
    ) -> Answer:
        """Within the timeout, or the objective where it can be kept; raises as the model does, Forbidden, OverLimit."""
        if self._draining:
            raise TryLater("the server is shutting down", _NOT_READY_S)
        serving = self._entered(model, caller)
        backend = serving.backend
        had_s = model.patience_s if timeout_s is None else timeout_s
        model.metrics.offered_rows += len(rows)
        if visit is not None:
            visit.reserve(had_s)
            if had_s >= backend.derived.slo_s:  # in less time than that nobody has promised it
                visit.promise(had_s, arrived_s + had_s)
        try:
            answer = await backend.answer(LiveRequest(rows, arrived_s + had_s, arrived_s, caller.tenant, visit))
        except (TryLater, Late) as error:
            told = _refusal(error, self.host, model, backend.derived.slo_s, len(rows), had_s)
            if told is error:
                raise
            raise told from error
        else:
            answer.version = serving.version
            if model.split is not None:
                model.split.answered(model, rows, answer)
            return answer
        finally:
            serving.inside -= 1
            caller.leave()

    @contextlib.contextmanager
    def inside(self, model: Deployment, caller: Caller) -> Iterator[Serving]:
        """A request that needs no device; raises as `answer` does before it begins."""
        if self._draining:
            raise TryLater("the server is shutting down", _NOT_READY_S)
        serving = self._entered(model, caller)
        try:
            yield serving
        finally:
            serving.inside -= 1
            caller.leave()

    def _entered(self, model: Deployment, caller: Caller, adapter: str = "") -> Serving:
        """A request begins, for the caller and for the model; an adapter's name is one of its own to a key."""
        serving = model.enter()
        try:
            caller.enter(adapter or model.name)
        except TwoshiftError:
            serving.inside -= 1
            raise
        return serving

    def unready(self, name: str | None = None) -> str | None:
        """Why no request should come here, or to one model; None where all is well."""
        if self._draining:
            return "the server is shutting down"
        known = self.models.all
        if name is not None:
            model = known.get(name) or self.find(name)
            return model.why_not or _unhealthy(model) or None
        away = [each.why_not for each in known.values() if each.why_not]
        if away and (not self.is_started or not self.models):
            return "; ".join(away)
        if self.is_opening:
            return "the server is loading"
        return next(filter(None, map(_unhealthy, self.models.values())), None)

    def warnings(self) -> list[str]:
        """What its models cannot keep, as far as is known now, and those of them that do not answer."""
        derived = [(name, model.derived_now()) for name, model in self.models.items()]
        slow = [f"{name}: {each.warning}" for name, each in derived if isinstance(each, Derived) and each.warning]
        left = [(name, each.serving.wakes_in_s()) for name, each in self.models.items() if each.serving is not None]
        slow += [f"{name} is asleep: the next request waits about {s:.2g} s" for name, s in left if s is not None]
        return slow + [why for each in self.models.all.values() if (why := each.why_not or each.reason)]

    def follow_curves(self) -> None:
        """What was learned of the devices, for those who have no time to ask them: to be called every second or so."""
        per_s = 0.0
        for model in self.models.values():
            derived = self.derived(model)
            model.timeout_s = derived.timeout_s if isinstance(derived, Derived) else derived.slo_s
            if model.split is not None:
                model.split.candidate.timeout_s = model.timeout_s
            if isinstance(derived, Derived):
                per_s += derived.capacity_rows_per_s / model.rows_per_request
        self.host.policy.capacity_per_s = per_s / self.sharers
        self._longest_timeout_s = max((each.timeout_s for each in self.models.values()), default=1.0)

    async def watch(self) -> None:
        """The watchdog: says in the log when readiness is lost, why, and when it is back. Until it is cancelled."""
        before: str | None = None
        while True:
            await asyncio.sleep(_WATCH_S)
            self.follow_curves()
            now = self.unready() if self.is_started else before  # loading is no news
            if now is not None and before is None:
                _logger.error("the server is not ready: %s", now)
            elif now is None and before is not None:
                _logger.warning("the server is ready again")
            before = now

    def drain(self) -> None:
        """Take nothing new; what was admitted is answered."""
        self._draining = True

    def close(self) -> None:
        """Let the models go."""
        close_models([serving.backend for each in self.models.all.values() for serving in each.servings], None)


def _refusal(
    error: TryLater | Late, host: Host, model: Deployment, slo_s: float, rows: int, had_s: float
) -> TryLater | Late:
    """As the caller gets it, who had so much time."""
    if isinstance(error, Asleep):  # a replica starts: more of them would not have helped
        return error
    if had_s >= slo_s:  # in less time than that nobody has promised it
        model.metrics.refused_rows += rows
        if isinstance(error, Late) and error.begun:
            host.policy.was_late(slo_s, time.monotonic())
        elif isinstance(error, Late):  # nothing is wrong with its time: there was too much to do
            error = TryLater("the queue was too long to start the request in time", slo_s)
    if type(error) is TryLater:
        least_s = min(error.retry_after_s, _LONGEST_WAIT_S)  # a curve may say that nobody can tell
        return TryLater(str(error), host.retry_after_s(least_s), error.for_clients)
    return error


def _unhealthy(model: Deployment) -> str:
    health = model.health()
    return "" if health.healthy else f"{model.name}: {health.reason}"


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
