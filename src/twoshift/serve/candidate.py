"""A candidate comes beside what answers for a deployment, and one of the two goes."""

from __future__ import annotations

from twoshift.serve.deployments import Deployment, DeploymentState, Serving, version_of
from twoshift.serve.live_model import LiveModel
from twoshift.serve.llm.language_model import is_language_model
from twoshift.serve.service import Service
from twoshift.serve.versions import VersionSplit, Watch

__all__ = ["begin_candidate", "end_candidate"]


def begin_candidate(
    service: Service, deployment: Deployment, backend: LiveModel, salt: str
) -> VersionSplit[Deployment]:
    """This backend may be given requests beside the one that answers. On the loop that serves."""
    assert service.completions is not None  # noqa: S101 - it has started
    backend.start(service.completions)
    candidate = Deployment(deployment.name, version_of(backend.info), deployment.created_unix_s, deployment.adapters)
    candidate.metrics, candidate.traces = deployment.metrics, deployment.traces
    candidate.may_skip_device = deployment.may_skip_device
    candidate.timeout_s, candidate.serving = deployment.timeout_s, Serving(backend)
    candidate.state = DeploymentState.READY
    split = candidate.split = VersionSplit(deployment, candidate, salt)
    to_first_token = is_language_model(backend)
    candidate.watch, deployment.watch = Watch(to_first_token), Watch(to_first_token)
    deployment.split = split
    service.follow_curves()
    return split


def end_candidate(service: Service, split: VersionSplit[Deployment], promoted: bool) -> Serving | None:
    """One of the two answers alone from now on; what the other one leaves behind. On the loop that serves."""
    deployment, candidate = split.stable, split.candidate
    if deployment.split is not split:
        return None
    split.share = 0.0
    deployment.split_ends(promoted)
    deployment.split = deployment.watch = None
    if promoted:
        before = service.models.hand_over(deployment, candidate)
        service.follow_curves()
        return before
    before, candidate.state = candidate.serving, DeploymentState.UNLOADING
    if before is not None:
        deployment.leaves(before.backend)
    return before
