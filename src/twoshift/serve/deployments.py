"""The models of a server by name, which may come, change and go while it serves."""

from __future__ import annotations

import threading
import time
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from twoshift.endpoints.facts import ModelFacts
from twoshift.engine.stats import EngineStats, Health, Queue
from twoshift.errors import InvalidInput, NotFound, TryLater, TwoshiftError
from twoshift.ports import RuntimeInfo
from twoshift.registry.names import parse_ref
from twoshift.serve.derived import Derived
from twoshift.serve.live_model import LiveModel, Sleeps
from twoshift.serve.llm_derived import LlmDerived
from twoshift.serve.metrics import ModelMetrics
from twoshift.serve.past_versions import PastVersions, VersionCounts
from twoshift.serve.sums import stats_together
from twoshift.serve.tracing import Traces
from twoshift.serve.versions import VersionSplit, Watch
from twoshift.types import Lane, ReplicaCounts, Tensor

__all__ = ["Deployment", "DeploymentState", "Deployments", "Serving", "columns_of", "is_reranker", "version_of"]

_LOADING_RETRY_S, _FAILED_RETRY_S = 2.0, 30.0
_FIRST_TIMEOUT_S = 1.0  # before a model says what its objective is
_PATIENCE = 4.0  # a start on a busy machine takes that many times as long as the last one


class DeploymentState(StrEnum):
    """Of a deployment; requests are answered in READY alone."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    UNLOADING = "unloading"  # what was admitted is answered
    UNLOADED = "unloaded"


@dataclass(slots=True, eq=False)
class Serving:
    """A backend that answers for a deployment, and how many requests are inside it."""

    backend: LiveModel
    inside: int = 0  # of the server's loop
    version: str = ""  # the registry's number
    facts: tuple[object, ModelFacts] | None = None  # of its outputs: what requests are read by, on the server's loop
    _sleeper: Sleeps | None = None

    def __post_init__(self) -> None:
        self.version = self.version or version_of(self.backend.info)
        self._sleeper = self.backend if isinstance(self.backend, Sleeps) else None

    def wakes_in_s(self) -> float | None:
        """Until it answers, where it sleeps; None where it does not."""
        return None if self._sleeper is None else self._sleeper.wakes_in_s()


class Deployment:
    """A name that clients ask for: what answers them, what is counted, and its state."""

    def __init__(
        self, name: str, version: str = "1", created_unix_s: int | None = None, adapters: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.version = version  # the registry's number of what answers
        self.word: str | None = None  # the model that answers by now, where that is not the one of the settings
        self.split: VersionSplit[Deployment] | None = None  # while a rollout has a candidate beside this version
        self.watch: Watch | None = None  # told of each reply while a rollout judges
        self.adapters = tuple(adapters)  # of a language model: further names that clients ask for
        self.created_unix_s = int(time.time()) if created_unix_s is None else created_unix_s
        self.metrics = ModelMetrics()
        self.traces: Traces | None = None
        self.may_skip_device = False  # it has precomputed answers: a request may need no device
        self.timeout_s = _FIRST_TIMEOUT_S  # of requests that bring none; followed by the service's watchdog
        self.state = DeploymentState.LOADING
        self.reason = ""  # how far it is loaded, or why it does not answer; of one that is ready: why a reload failed
        self.serving: Serving | None = None
        self._past = PastVersions()  # requests by version, where there was more than one
        self._leaving: tuple[LiveModel, ...] = ()  # backends that answer what they have admitted
        self._gone: dict[str, EngineStats] = {}  # by version: what backends that are no more had done

    @property
    def backend(self) -> LiveModel:
        """What answers now; raises what a request for it gets where nothing does."""
        serving = self.serving
        if serving is None:
            raise self.unavailable()
        return serving.backend

    @property
    def patience_s(self) -> float:
        """What a request has that brings no time: where the model sleeps, also for its start."""
        wakes_in_s = None if self.serving is None else self.serving.wakes_in_s()
        return self.timeout_s + _PATIENCE * (wakes_in_s or 0.0)

    @property
    def servings(self) -> list[Serving]:
        """What answers now, a candidate included."""
        beside = None if self.split is None else self.split.candidate.serving
        return [each for each in (self.serving, beside) if each is not None]

    def enter(self) -> Serving:
        """Begins a request, on the server's loop: whoever gets this counts it out of `inside`."""
        serving = self.serving
        if serving is None or self.state is not DeploymentState.READY:
            raise self.unavailable()
        serving.inside += 1
        return serving

    def unavailable(self) -> TwoshiftError:
        """What a request for it gets while it does not answer."""
        match self.state:
            case DeploymentState.LOADING | DeploymentState.READY:
                return TryLater(self.why_not or f"{self.name} is loading", _LOADING_RETRY_S)
            case DeploymentState.FAILED:
                return TryLater(self.why_not, _FAILED_RETRY_S)
            case _:
                return NotFound("model", self.name, f"a loaded model; {self.why_not}")

    @property
    def why_not(self) -> str:
        """Why it does not answer; empty where it does."""
        match self.state:
            case DeploymentState.READY:
                return ""
            case DeploymentState.LOADING:
                return f"{self.name} is loading{f': {self.reason}' if self.reason else ''}"
            case DeploymentState.FAILED:
                return f"{self.name} failed to load: {self.reason}"
            case _:
                return f"{self.name} is {self.state}"

    # As its backend has it

    @property
    def info(self) -> RuntimeInfo:
        """Of the model."""
        return self.backend.info

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What was seen in its answers; none before the first."""
        return self.backend.outputs

    @property
    def most_rows(self) -> int:
        """Of the largest request that can ever be admitted."""
        return self.backend.most_rows

    @property
    def derived(self) -> Derived | LlmDerived:
        """From the curve that it began with."""
        return self.backend.derived

    @property
    def rows_per_request(self) -> float:
        """On the average, of late."""
        return self.backend.rows_per_request

    def derived_now(self) -> Derived | LlmDerived:
        """From the curve as learned so far."""
        return self.backend.derived_now()

    def finish_in_s(self, size: int, requests: int, left_s: float, /) -> float:
        """Until so many requests of so many bytes would be answered by a device; 0: in a small part of `left_s`."""
        return self.backend.finish_in_s(size, requests, left_s)

    def health(self) -> Health:
        """Whether it keeps up."""
        return self.backend.health()

    def stats(self) -> EngineStats:
        """What its devices have done since the start, those of backends that are no more included."""
        found = [*self.stats_by_version().values()]
        return found[0] if len(found) == 1 else stats_together(found)

    def stats_by_version(self) -> dict[str, EngineStats]:
        """The same for each version that has answered."""
        split, found = self.split, dict[str, list[EngineStats]]()
        beside = [] if split is None or split.candidate is self else [split.candidate.backend]
        for each in (*self._leaving, *beside, self.backend):
            found.setdefault(version_of(each.info), []).append(each.stats())
        for version, gone in [*self._gone.items()]:
            found.setdefault(version, []).append(gone)
        return {version: each[0] if len(each) == 1 else stats_together(each) for version, each in found.items()}

    def split_ends(self, promoted: bool) -> None:
        """What its candidate and itself have replied stays counted by version."""
        if (split := self.split) is not None:
            total, beside = self.metrics.total(), split.counted.total()
            self._past.ended(self.version, total, split.candidate.version, beside, promoted)

    def by_version(self) -> list[VersionCounts]:
        """What each version that there is or was has replied."""
        split, total = self.split, self.metrics.total()
        if split is None:
            return self._past.counts(self.version, total)
        return self._past.counts(self.version, total, (split.candidate.version, split.share, split.counted.total()))

    def leaves(self, backend: LiveModel) -> None:
        """It answers what it has admitted, and nothing more."""
        self._leaving = (*self._leaving, backend)

    def retired(self, backend: LiveModel) -> None:
        """What it has done stays counted."""
        self._leaving = tuple(each for each in self._leaving if each is not backend)
        version, now = version_of(backend.info), backend.stats()
        before = self._gone.get(version)
        self._gone[version] = now if before is None else stats_together([now, before])

    def waiting(self) -> Mapping[Lane, Queue]:
        """Who waits for them."""
        return self.backend.waiting()

    def replicas(self) -> ReplicaCounts:
        """How many there are."""
        return self.backend.replicas()


class Deployments(Mapping[str, Deployment]):
    """As a mapping: those that are ready, now. `all` has the others, too.

    Any thread may read it without a lock: each change replaces the dictionaries, so that a reader has those of one
    moment.
    """

    def __init__(self, backends: Mapping[str, LiveModel] | None = None) -> None:
        self._lock = threading.Lock()  # guards changes
        self._all: dict[str, Deployment] = {}
        self._ready: dict[str, Deployment] = {}
        for name, backend in (backends or {}).items():
            self.serve(self.add(Deployment(name)), backend)

    def __getitem__(self, name: str) -> Deployment:
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ready)

    def __len__(self) -> int:
        return len(self._ready)

    def get(self, name: str, default: Any = None) -> Any:
        """The one that is ready."""
        return self._ready.get(name, default)

    def keys(self) -> KeysView[str]:
        """Of one moment."""
        return self._ready.keys()

    def values(self) -> ValuesView[Deployment]:
        """Of one moment."""
        return self._ready.values()

    def items(self) -> ItemsView[str, Deployment]:
        """Of one moment."""
        return self._ready.items()

    @property
    def all(self) -> Mapping[str, Deployment]:
        """Whatever their state, of one moment."""
        return self._all

    @property
    def only(self) -> Deployment | None:
        """The one that is ready, where there is no other of any state."""
        return next(iter(self._ready.values()), None) if len(self._all) == 1 else None

    def find(self, name: str) -> Deployment:
        """The one of that name, or with an adapter of it, ready; raises NotFound, or why it does not answer."""
        found = self._ready.get(name)
        if found is not None:
            return found
        if (known := self.known(name)) is None:
            raise NotFound("model", name, f"one of these models: {', '.join(sorted(self.names()))}")
        if known.state is not DeploymentState.READY:
            raise known.unavailable()
        return known

    def known(self, name: str) -> Deployment | None:
        """The one of that name, or with an adapter of that name, whatever its state."""
        return self._all.get(name) or next((each for each in self._all.values() if name in each.adapters), None)

    def names(self) -> dict[str, str]:
        """All that clients may ask for, adapters included, each with the name of its deployment."""
        deployments = self._all
        adapters = {name: each.name for each in deployments.values() for name in each.adapters}
        return {name: name for name in deployments} | adapters

    def add(self, deployment: Deployment) -> Deployment:
        """One that loads; raises InvalidInput where the name is taken."""
        with self._lock:
            if deployment.name in self._all:
                raise InvalidInput("name", deployment.name, "a name that no other deployment uses")
            self._all = {**self._all, deployment.name: deployment}
        return deployment

    def remove(self, deployment: Deployment) -> None:
        """It is no longer known."""
        with self._lock:
            self._all = {name: each for name, each in self._all.items() if each is not deployment}
            self._look()

    def serve(self, deployment: Deployment, backend: LiveModel) -> Serving | None:
        """From now on this backend answers; the one that did so before, for whoever drains and closes it."""
        with self._lock:
            before, deployment.serving = deployment.serving, Serving(backend)
            if before is not None and before.backend is not backend:
                deployment.leaves(before.backend)
            deployment.version = version_of(backend.info)
            deployment.metrics.slo_s = _request_slo_s(backend)
            deployment.state, deployment.reason = DeploymentState.READY, ""
            self._look()
        return before

    def hand_over(self, deployment: Deployment, candidate: Deployment) -> Serving | None:
        """From now on its candidate answers, with the requests that are inside it; what did so before."""
        with self._lock:
            before, deployment.serving = deployment.serving, candidate.serving
            if before is not None:
                deployment.leaves(before.backend)
            deployment.version = candidate.version
            deployment.metrics.slo_s = (
                None if deployment.serving is None else _request_slo_s(deployment.serving.backend)
            )
            deployment.state, deployment.reason = DeploymentState.READY, ""
            self._look()
        return before

    def move(self, deployment: Deployment, state: DeploymentState, reason: str = "") -> None:
        """It does not answer from now on, or not yet."""
        with self._lock:
            deployment.state, deployment.reason = state, reason
            if state in (DeploymentState.FAILED, DeploymentState.UNLOADED):
                deployment.serving = None
            self._look()

    def _look(self) -> None:
        self._ready = {name: each for name, each in self._all.items() if each.state is DeploymentState.READY}


def version_of(info: RuntimeInfo) -> str:
    """The registry's number of a model; 1 where it has none."""
    ref = parse_ref(info.model)
    return "1" if ref is None or ref.version is None else str(ref.version)


def _request_slo_s(backend: LiveModel) -> float | None:
    """What a whole request may take; None where only its tokens have an objective."""
    return backend.derived.slo_s if isinstance(backend.derived, Derived) else None


def columns_of(model: Deployment) -> Sequence[str]:
    """What it answers with; none: not known before the first answer."""
    return model.info.outputs or tuple(tensor.name for tensor in model.outputs)


def is_reranker(model: Deployment) -> bool:
    """Whether it scores pairs of texts; the `score` of a user's own class may be of anything."""
    return "score" in columns_of(model) and model.info.runtime != "python"
