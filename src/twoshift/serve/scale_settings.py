"""How a model's replicas are scaled between their bounds."""

from __future__ import annotations

import msgspec

from twoshift.errors import InvalidInput
from twoshift.policy.autoscale import AutoscalePolicy, ReplicaSettings, WorkerSettings
from twoshift.units import parse_duration

__all__ = ["ScaleSettings"]


class ScaleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How replicas are scaled; every key has a default."""

    cooldown: str = "5m"  # a replica that was needed within this stays
    every: str = "2s"  # between two looks
    waiting_per_replica: int = 20
    longest_wait: str = "1s"
    refused_share: float = 0.01  # of what is asked for
    target_load: float = 0.8  # of what a replica can do: what is left absorbs growth while another one starts
    borrow_load: float = 0.9  # up to there batch rows give way before a replica is added
    batch_replicas: int = 0  # beside those that live load needs, for jobs that would miss their window
    start: str = "30s"  # until a new replica helps a job

    def __post_init__(self) -> None:
        self.policy(1, 1)
        if not 0.01 <= self.every_s <= 3600:
            raise InvalidInput("every", self.every, "a duration from 10ms to 1h")

    @property
    def every_s(self) -> float:
        """Between two looks."""
        return parse_duration(self.every, "every")

    def replicas(self, min_replicas: int, max_replicas: int) -> ReplicaSettings:
        """How live load sizes them; raises InvalidInput."""
        return ReplicaSettings(
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            waiting_per_replica=self.waiting_per_replica,
            longest_wait_s=parse_duration(self.longest_wait, "longest_wait"),
            refused_share=self.refused_share,
            target_load=self.target_load,
            borrow_load=self.borrow_load,
            cooldown_s=parse_duration(self.cooldown, "cooldown"),
        )

    def policy(self, min_replicas: int, max_replicas: int) -> AutoscalePolicy:
        """Who decides; raises InvalidInput."""
        workers = WorkerSettings(
            quota=self.batch_replicas,
            start_s=parse_duration(self.start, "start"),
            cooldown_s=parse_duration(self.cooldown, "cooldown"),
        )
        return AutoscalePolicy(self.replicas(min_replicas, max_replicas), workers, max_replicas, shared=True)
