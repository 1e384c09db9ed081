"""Settings for scaling a model's replicas."""

from __future__ import annotations

from typing import Annotated

import msgspec

from twoshift.declare import check, key, setting
from twoshift.policy.autoscale import AutoscalePolicy, ReplicaSettings, WorkerSettings
from twoshift.units import parse_duration
from twoshift.values import share, span, whole

__all__ = ["ScaleSettings"]

_TARGET = (
    "Share of a replica's capacity that live rows should use. The rest absorbs growth while another replica starts."
)
_KV = "Add replicas if live sequences use more than this share of the KV cache."
_BATCH = "Maximum number of extra replicas for jobs that would otherwise miss their deadline."


class ScaleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How replicas are scaled; every key has a default."""

    cooldown: Annotated[
        str, setting("Cooldown: keep a replica for this time after the replica was last needed.", span(zero=True))
    ] = "5m"
    every: Annotated[str, key("Time between two scaling decisions.", span(least="10ms", most="1h"))] = "2s"
    waiting_per_replica: Annotated[
        int, key("Add replicas if the number of waiting live rows per replica is larger than this.", whole())
    ] = 20
    longest_wait: Annotated[str, key("Add replicas if a live row has waited longer than this.", span(zero=True))] = "1s"
    refused_share: Annotated[
        float, key("Add replicas if more than this share of the live rows is refused.", share())
    ] = 0.01
    kv_mark: Annotated[float, key(_KV, share())] = 0.8
    target_load: Annotated[float, key(_TARGET, share())] = 0.8
    borrow_load: Annotated[
        float,
        key(
            "If live rows need at most this share of the capacity, hold back batch rows instead of adding a replica.",
            share(),
        ),
    ] = 0.9
    batch_replicas: Annotated[int, key(_BATCH, whole(0))] = 0
    start: Annotated[
        str,
        key(
            "Expected time from the start of a new replica until the replica can process rows of a job.",
            span(zero=True),
        ),
    ] = "30s"

    def __post_init__(self) -> None:
        check(self)
        self.policy(1, 1)

    @property
    def every_s(self) -> float:
        """Time between two scaling decisions."""
        return parse_duration(self.every, "every")

    def replicas(
        self, min_replicas: int, max_replicas: int, cold_start_limit_s: float | None = None
    ) -> ReplicaSettings:
        """How live load sizes them; raises InvalidInput."""
        return ReplicaSettings(
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            cold_start_limit_s=cold_start_limit_s,
            waiting_per_replica=self.waiting_per_replica,
            longest_wait_s=parse_duration(self.longest_wait, "longest_wait"),
            refused_share=self.refused_share,
            kv_mark=self.kv_mark,
            target_load=self.target_load,
            borrow_load=self.borrow_load,
            cooldown_s=parse_duration(self.cooldown, "cooldown"),
        )

    def policy(self, min_replicas: int, max_replicas: int, cold_start_limit_s: float | None = None) -> AutoscalePolicy:
        """Who decides; raises InvalidInput. With a minimum of 0 a longer cold start than this keeps one replica."""
        workers = WorkerSettings(
            quota=self.batch_replicas,
            start_s=parse_duration(self.start, "start"),
            cooldown_s=parse_duration(self.cooldown, "cooldown"),
        )
        replicas = self.replicas(min_replicas, max_replicas, cold_start_limit_s)
        return AutoscalePolicy(replicas, workers, max_replicas, shared=True)
