"""A scaler for a model that is served: what it counts, what jobs have left, who adds and removes its replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from twoshift.fleet.actuator import Actuator
from twoshift.fleet.observer import Backlog, FleetObserver, ModelCounts, most_urgent
from twoshift.fleet.scale_log import ScaleLog
from twoshift.fleet.scaler import Scaler
from twoshift.policy.autoscale import AutoscalePolicy
from twoshift.policy.replica_signals import read_levels
from twoshift.serve.deployments import Deployment
from twoshift.serve.live_model import LiveModel
from twoshift.types import Lane

__all__ = ["decisions", "model_counts", "scaler_for", "signals"]

Backlogs = Callable[[], Iterable[Backlog]]
Samples = Iterator[tuple[str, str, str, tuple[str, ...], list[tuple[Any, ...]]]]


def scaler_for(
    deployment: Deployment, fleet: Actuator, policy: AutoscalePolicy, backlogs: Backlogs, log: ScaleLog | None
) -> Scaler:
    """Of the fleet that answers for a deployment; not started."""
    observer = FleetObserver(lambda: _counts(deployment), backlogs, fleet)
    return Scaler(policy, observer.observe, fleet, log, model=deployment.name)


def _counts(deployment: Deployment) -> ModelCounts:
    return model_counts(deployment.backend, *deployment.metrics.total_rows())


def model_counts(model: LiveModel | Deployment, offered_rows: int, refused_rows: int) -> ModelCounts:
    """As it is now."""
    stats, derived = model.stats(), model.derived_now()
    live = stats.lanes[Lane.ONLINE]
    tokens_per_s = derived.capacity_rows_per_s * derived.row_tokens  # of all that are ready
    return ModelCounts(
        offered_rows=offered_rows,
        refused_rows=refused_rows,
        harvested_rows=stats.lanes[Lane.BATCH].rows,
        answered_rows=live.rows,
        answered_tokens=live.tokens,
        replica_tokens_per_s=tokens_per_s / max(1, model.replicas().ready),
        row_tokens=derived.row_tokens,
        levels=read_levels(model),
    )


def signals(models: Mapping[str, Deployment], backlogs: Callable[[str], Iterable[Backlog]]) -> Samples:
    """What an autoscaler outside may read, as families of metrics: kind, name, what it is, labels, samples."""
    names = {name: (list(backlogs(name)), _counts(model)) for name, model in models.items()}

    def each(value: Callable[[list[Backlog], ModelCounts], float]) -> list[tuple[Any, ...]]:
        return [(name, value(jobs, counts)) for name, (jobs, counts) in names.items()]

    label = ("model",)
    yield ("gauge", "job_rows_left", "Rows that jobs still have to process.", label,
           each(lambda jobs, _: sum(job.pending_rows for job in jobs)))  # fmt: skip
    yield ("gauge", "urgent_rows_left",
           "Rows that jobs have to process before the deadline that needs the most rows per second.", label,
           each(lambda jobs, _: most_urgent(jobs).pending_rows))  # fmt: skip
    yield ("gauge", "urgent_seconds_left",
           "Seconds until the deadline that needs the most rows per second; infinite without a deadline.", label,
           each(lambda jobs, _: most_urgent(jobs).time_left_s))  # fmt: skip
    yield ("gauge", "cold_start_seconds", "Seconds that the last start of a replica took; 0: not known.", label,
           each(lambda _, counts: counts.levels["cold_start_s"]))  # fmt: skip
    yield ("gauge", "replica_rows_per_second", "Rows per second that one replica can process within the SLO.", label,
           each(lambda _, counts: counts.rows_per_s_since(None)))  # fmt: skip


def decisions(scalers: Mapping[str, Scaler]) -> Samples:
    """What was decided, by direction and what it followed from."""
    yield (
        "counter",
        "scale_decisions",
        "Decisions of the autoscaler.",
        ("model", "direction", "reason"),
        [
            (name, direction, str(signal), count)
            for name, scaler in scalers.items()
            for (direction, signal), count in sorted(scaler.decisions.copy().items())
        ],
    )
