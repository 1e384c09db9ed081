"""What jobs and streams know of the models that a server serves: replicas with room in their background lanes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from weakref import WeakKeyDictionary

from twoshift.batch.job_seats import EngineReplica, LaneReplica, LiveFleet
from twoshift.fleet.fleet_backend import FleetBackend
from twoshift.serve.deployments import Deployments
from twoshift.serve.live_model import LiveModel
from twoshift.serve.llm.language_model import is_language_model
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel
from twoshift.serve.settings import ServeSettings
from twoshift.wiring.deployed_versions import deployed_version

__all__ = ["LiveFleets"]


class LiveFleets:
    """The fleet behind each deployment."""

    def __init__(self, models: Deployments, settings: ServeSettings) -> None:
        self._models, self._settings = models, settings
        self._here: WeakKeyDictionary[LiveModel, EngineReplica] = WeakKeyDictionary()  # a job finds its seat again

    def of(self, name: str) -> LiveFleet:
        """By the name of a deployment or an adapter, or by a registered version that is deployed; raises NotFound."""
        version, known = None, self._models.known(name)
        if known is None:
            name, version = deployed_version(self._models, name, self._settings.registry)
            known = self._models.all[name]
        asked, name = name, known.name
        serving = self._models.get(name)
        return LiveFleet(
            partial(self._replicas, name),
            known.metrics.recent,
            is_llm=serving is not None and is_language_model(serving.backend),
            why_dead=partial(self._why_dead, name),
            why_away=partial(self._why_away, name),
            model=name,
            adapter=None if asked == name else asked,
            slo_s=partial(self._slo_s, name),
            most_workers=self._settings.models[name].job_replicas(self._settings.engine),
            version=version,
        )

    def _replicas(self, name: str) -> Sequence[LaneReplica]:
        found = self._models.get(name)
        if found is None:
            return ()
        backend = found.backend
        if isinstance(backend, FleetBackend):
            return backend.lane_replicas()
        assert isinstance(backend, ServedModel | ServedLlm)  # noqa: S101 - there are three
        return [self._here.get(backend) or self._here.setdefault(backend, EngineReplica(backend.engine))]

    def _why_dead(self, name: str) -> str:
        """Of an engine in this process: for one that dies in a process of its own, another is started."""
        backend = None if (found := self._models.get(name)) is None else found.backend
        return backend.engine.why_dead if isinstance(backend, ServedModel | ServedLlm) else ""

    def _why_away(self, name: str) -> str:
        known = self._models.all.get(name)
        return f"{name} is not deployed on this server" if known is None else known.why_not

    def _slo_s(self, name: str) -> float | None:
        found = self._models.get(name)
        return None if found is None or is_language_model(found.backend) else found.derived.slo_s
