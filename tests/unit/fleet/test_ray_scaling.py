"""What Ray Serve's controller knows, as our policy decides it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from twoshift.fleet.ray_scaling import RayScaling, replica_state
from twoshift.policy.replica_signals import ReplicaState


@dataclass
class Context:
    """The fields of Ray's, as it names them."""

    target_num_replicas: int = 1
    running_replicas: list[str] = field(default_factory=lambda: ["a"])
    total_queued_requests: float | None = 0.0
    aggregated_metrics: dict[str, dict[str, float]] | None = None
    policy_state: dict[str, Any] = field(default_factory=dict[str, Any])
    current_time: float | None = 0.0


def told(**signals: dict[str, float]) -> dict[str, dict[str, float]]:
    assert set(signals) <= set(ReplicaState(1).told())
    return signals


def test_the_signals_of_the_running_replicas_add_up_and_those_of_others_do_not_count() -> None:
    signals = told(
        live_rows_per_s={"a": 30.0, "b": 40.0, "gone": 1e6},
        replica_rows_per_s={"a": 100.0, "b": 0.0},
        waiting={"a": 2.0, "b": 3.0},
        oldest_wait_s={"a": 0.1, "b": 0.3},
        kv_saturation={"a": 0.9, "b": 0.5},
    )
    context = Context(3, ["a", "b"], 4.0, signals)
    state = replica_state(context)
    assert (state.ready, state.starting, state.waiting) == (2, 1, 9)
    assert (state.live_rows_per_s, state.replica_rows_per_s, state.oldest_wait_s) == (70.0, 100.0, 0.3)
    assert state.kv_saturation == pytest.approx(0.7)


def test_load_adds_replicas_at_once_and_the_cool_down_is_ours() -> None:
    policy = RayScaling(max_replicas=4, cooldown_s=60.0)
    busy = told(live_rows_per_s={"a": 150.0}, replica_rows_per_s={"a": 100.0})
    assert policy(Context(aggregated_metrics=busy))[0] == 2
    idle = told(live_rows_per_s={"a": 1.0, "b": 1.0}, replica_rows_per_s={"a": 100.0, "b": 100.0})
    later = Context(2, ["a", "b"], 0.0, idle, {"kept": 1}, 30.0)
    assert policy(later) == (2, {"kept": 1})
    later.current_time = 100.0
    assert policy(later)[0] == 1


def test_a_deployment_that_has_told_nothing_keeps_what_it_has() -> None:
    assert RayScaling(max_replicas=4)(Context(2, ["a", "b"], None))[0] == 2


@pytest.mark.slow
def test_rays_own_classes_take_it() -> None:
    pytest.importorskip("ray.serve")
    from ray.serve._private.autoscaling_state import _resolve_policy_callable
    from ray.serve.autoscaling_policy import _apply_autoscaling_config
    from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

    policy = AutoscalingPolicy(
        policy_function="twoshift.fleet.ray_scaling:RayScaling", policy_kwargs={"max_replicas": 3, "cooldown_s": 10.0}
    )
    config = AutoscalingConfig(min_replicas=1, max_replicas=3, upscale_delay_s=0, downscale_delay_s=0, policy=policy)
    decide = _apply_autoscaling_config(_resolve_policy_callable(config.policy))
    fields: dict[str, Any] = dict.fromkeys(AutoscalingContext.__init__.__annotations__)
    fields.pop("return", None)
    context = AutoscalingContext(
        **fields
        | {
            "current_num_replicas": 1,
            "target_num_replicas": 1,
            "running_replicas": ["a"],
            "total_num_requests": 5.0,
            "total_queued_requests": lambda: 0.0,
            "aggregated_metrics": told(live_rows_per_s={"a": 250.0}, replica_rows_per_s={"a": 100.0}),
            "policy_state": {},
            "current_time": 0.0,
            "config": config,
        }
    )
    assert decide(context)[0] == 3
