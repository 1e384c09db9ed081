"""Our autoscaling policy as Ray Serve's: what its controller knows of a deployment, and how many replicas follow.

Ray is not imported here: the controller hands over its AutoscalingContext, whose fields are named below.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twoshift.policy.autoscale import ReplicaPolicy, ReplicaSettings
from twoshift.policy.replica_signals import ReplicaState, together

__all__ = ["RayContext", "RayScaling", "replica_state"]

_logger = logging.getLogger("twoshift.scale")


class RayContext(Protocol):
    """What is used of ray.serve.config.AutoscalingContext."""

    @property
    def target_num_replicas(self) -> int: ...

    @property
    def running_replicas(self) -> Sequence[Any]: ...

    @property
    def total_queued_requests(self) -> float | None: ...

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None: ...

    @property
    def policy_state(self) -> dict[str, Any]: ...

    @property
    def current_time(self) -> float | None: ...


def replica_state(context: RayContext) -> ReplicaState:
    """A deployment as the policy sees it; a replica that has told nothing yet adds nothing."""
    told = context.aggregated_metrics or {}
    running = {*context.running_replicas}

    def of(name: str) -> list[float]:
        return [max(0.0, float(value)) for replica, value in told.get(name, {}).items() if replica in running]

    ready, figures = len(running), together(of)
    waiting = round(figures.pop("waiting") + (context.total_queued_requests or 0.0))
    jobs = round(figures.pop("job_rows_left"))
    starting = max(0, context.target_num_replicas - ready)
    return ReplicaState(ready, starting, waiting=waiting, job_rows_left=jobs, **figures)


class RayScaling:
    """`AutoscalingPolicy(policy_function="twoshift.fleet.ray_scaling:RayScaling", policy_kwargs={...})`.

    The deployment's upscale_delay_s and downscale_delay_s are 0: the cool-down is ours.
    """

    def __init__(self, **settings: Any) -> None:
        """Of ReplicaSettings; raises InvalidInput."""
        self._policy = ReplicaPolicy(ReplicaSettings(**settings))

    def __call__(self, context: RayContext) -> tuple[int, dict[str, Any]]:
        """How many replicas there should be, and what the controller keeps for the next time."""
        scale = self._policy.decide(replica_state(context), context.current_time or 0.0)
        if scale.change:
            _logger.warning("scaling replicas to %d: %s", scale.target, scale.reason)
        return scale.target, context.policy_state
