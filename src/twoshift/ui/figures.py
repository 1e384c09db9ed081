"""What a deployment does, in figures: read as sums, shown as rates over the last seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from twoshift.decodable import decodable
from twoshift.serve.deployments import Deployment, DeploymentState
from twoshift.serve.llm_derived import LlmDerived
from twoshift.types import Lane
from twoshift.ui.latencies import LatencyCounts

__all__ = ["Figures", "Objective", "Reading", "VersionShare", "figures_of", "objective_of", "read"]

_REFUSED, _FAILED = (429, 503), (500, 502, 504)


@decodable
class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment over some seconds."""

    at: float  # the end, as Unix time
    requests: int = 0  # that have their answer, or were too late
    p50_s: float | None = None  # None: nobody asked
    p99_s: float | None = None
    requests_per_s: float = 0.0
    refused_per_s: float = 0.0
    failed_per_s: float = 0.0
    rows_per_s: float = 0.0  # of live requests
    batch_rows_per_s: float = 0.0
    live: float = 0.0  # share of the time of its devices
    harvested: float = 0.0  # the same of jobs
    waiting: int = 0
    batch_waiting: int = 0
    replicas: int = 0
    starting: int = 0

    @property
    def idle(self) -> float:
        """What is left."""
        return max(0.0, 1.0 - self.live - self.harvested)


class Objective(msgspec.Struct, frozen=True):
    """What a deployment promises."""

    slo_s: float  # until the answer, or its first token
    tpot_s: float | None = None  # for each token after it; None: it is no language model


class VersionShare(msgspec.Struct, frozen=True):
    """A version that answers."""

    version: str
    role: str
    share: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Sums since the start, at a moment of the monotonic clock."""

    at_s: float
    replies: int = 0
    refused: int = 0
    failed: int = 0
    rows: int = 0
    batch_rows: int = 0
    live_s: float = 0.0  # of devices
    batch_s: float = 0.0


def read(deployment: Deployment) -> Reading:
    """On the loop that serves: a part of what is counted is its own."""
    by_status = deployment.metrics.requests_by_status()
    lanes = deployment.stats().lanes if deployment.serving is not None else {}
    behind = [use for lane, use in lanes.items() if lane is not Lane.ONLINE]
    live = lanes.get(Lane.ONLINE)
    return Reading(
        time.monotonic(),
        sum(by_status.values()),
        sum(by_status.get(each, 0) for each in _REFUSED),
        sum(by_status.get(each, 0) for each in _FAILED),
        0 if live is None else live.rows,
        sum(use.rows for use in behind),
        0.0 if live is None else live.device_s,
        sum(use.device_s for use in behind),
    )


def figures_of(deployment: Deployment, before: Reading, now: Reading, latencies: LatencyCounts) -> Figures:
    """Between two readings; queues and replicas as they are now."""
    took_s = max(1e-3, now.at_s - before.at_s)
    is_ready = deployment.serving is not None and deployment.state is DeploymentState.READY
    replicas = deployment.replicas() if is_ready else None
    waiting = deployment.waiting() if is_ready else {}
    device_s = took_s * max(1, 0 if replicas is None else replicas.ready)
    live = _share(now.live_s - before.live_s, device_s)
    return Figures(
        at=round(time.time(), 1),
        requests=latencies.requests,
        p50_s=latencies.quantile_s(0.5),
        p99_s=latencies.quantile_s(0.99),
        requests_per_s=max(0, now.replies - before.replies) / took_s,
        refused_per_s=max(0, now.refused - before.refused) / took_s,
        failed_per_s=max(0, now.failed - before.failed) / took_s,
        rows_per_s=max(0, now.rows - before.rows) / took_s,
        batch_rows_per_s=max(0, now.batch_rows - before.batch_rows) / took_s,
        live=live,
        harvested=min(1.0 - live, _share(now.batch_s - before.batch_s, device_s)),
        waiting=waiting[Lane.ONLINE].rows if waiting else 0,
        batch_waiting=sum(each.rows for lane, each in waiting.items() if lane is not Lane.ONLINE),
        replicas=0 if replicas is None else replicas.ready,
        starting=0 if replicas is None else replicas.starting,
    )


def _share(used_s: float, device_s: float) -> float:
    return min(1.0, max(0.0, used_s / device_s))


def objective_of(deployment: Deployment) -> Objective | None:
    """None while nothing answers."""
    if deployment.serving is None:
        return None
    derived = deployment.derived
    return Objective(derived.slo_s, derived.tpot_s if isinstance(derived, LlmDerived) else None)
