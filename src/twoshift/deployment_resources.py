"""What a server has for each of its deployments beside the model, and does where one comes or goes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from twoshift.errors import Broken
from twoshift.registry.names import parse_ref
from twoshift.serve.deployer import DeployerHooks
from twoshift.serve.deployments import Deployment, Deployments
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.indexes import SearchIndexes
from twoshift.serve.live_model import LiveModel
from twoshift.serve.precomputed_tables import PrecomputedTables
from twoshift.serve.rollouts import Rollouts
from twoshift.serve.settings import ServeSettings
from twoshift.server_ports import ServerPorts
from twoshift.server_services import ServerServices
from twoshift.wiring.answer_tables import build_table
from twoshift.wiring.backends import live_model
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.scalers import scalers_for, scaling_metrics
from twoshift.wiring.version_uses import VersionUses

if TYPE_CHECKING:
    from twoshift.fleet.scaler import Scaler
    from twoshift.serve.exposition import MoreMetrics

__all__ = ["DeploymentResources"]


class DeploymentResources:
    """Backends, autoscalers, search indexes, precomputed answers, and notes of which registered versions are in use."""

    def __init__(
        self, models: Deployments, settings: ServeSettings, ports: ServerPorts, note: Callable[[str], None]
    ) -> None:
        """`settings` may get more models later. `note` gets what an operator should read."""
        self._models, self._settings, self._ports, self._note = models, settings, ports, note
        self.services: ServerServices | None = None  # there before any deployment is loaded
        self.rollouts: Rollouts | NoJobs | None = None
        self._scalers: dict[str, Scaler] = {}
        self._uses = VersionUses()
        self.indexes = SearchIndexes(blobs_for)
        self.precomputed = PrecomputedTables(blobs_for, partial(build_table, tell=note))

    def scaling_metrics(self, services: ServerServices) -> MoreMetrics:
        """What the autoscalers see and decide."""
        return scaling_metrics(self._models, self._scalers, services.backlog)

    def close(self) -> None:
        """Of all deployments."""
        for scaler in [*self._scalers.values()]:
            scaler.close()
        self._uses.close()
        self.indexes.close()
        self.precomputed.close()

    # In the deployer's threads

    def hooks(self) -> DeployerHooks:
        """For who loads and unloads them."""
        return DeployerHooks(self._opened, self._arrived, self._leaving, self._tried, self._parting, self._reloads)

    def _opened(self, name: str, model: str | None, tell: Callable[[str], None], cancelled: Future[None]) -> LiveModel:
        return live_model(name, self._settings, tell, cancelled, apart=self._ports.fronts is not None, model=model)

    def _reloads(self, name: str) -> None:
        """An alias is looked at anew."""
        deployment, ref = self._models.all[name], parse_ref(self._settings.models[name].model)
        if deployment.serving is not None and ref is not None and ref.alias is not None:
            deployment.word = None
        if isinstance(self.rollouts, Rollouts):
            self.rollouts.interrupt(name)

    def _arrived(self, deployment: Deployment) -> None:
        assert self.services is not None  # noqa: S101 - they come before
        services, name = self.services, deployment.name
        of_model = self._settings.models[name]
        deployment.adapters = tuple(of_model.adapters)
        self._uses.begin(name, deployment.info)
        self.indexes.follow(name, of_model.index)
        deployment.may_skip_device = self.precomputed.follow(name, of_model)
        for scaler in scalers_for({name: deployment}, self._settings, services.backlog, self._note).values():
            self._scalers[name] = scaler
            scaler.scored = partial(services.scored, name)
            scaler.start(of_model.scale.every_s)
        if not isinstance(services.jobs, NoJobs):
            services.jobs.look_again()
        if self._ports.fronts is not None:
            self._ports.fronts.group.sync()

    def _tried(self, deployment: Deployment, backend: LiveModel) -> None:
        self._uses.begin(deployment.name, backend.info)

    def _parting(self, deployment: Deployment, backend: LiveModel, grace_s: float) -> None:
        if self._ports.fronts is not None:
            self._ports.fronts.group.let_go(backend, grace_s)
        self._uses.end(deployment.name, backend.info)

    def _leaving(self, deployment: Deployment, _backend: LiveModel) -> None:
        if (scaler := self._scalers.pop(deployment.name, None)) is not None:
            scaler.close()
        assert self.services is not None  # noqa: S101 - they come before
        why = deployment.why_not or f"{deployment.name} was reloaded"
        if not self.services.let_go(deployment.name, why, self._settings.grace_s):
            raise Broken(
                f"a job or a stream still uses {deployment.name} after the time `grace` ({self._settings.grace}): "
                "cancel the job or the stream, or try again later"
            )
