"""What every deployment does now, as a page and as the events that keep it so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twoshift.serve.deployments import Deployment, DeploymentState
from twoshift.types import ReplicaCounts
from twoshift.ui.feed import Sight
from twoshift.ui.figures import Figures, Objective, objective_of
from twoshift.ui.rendering import number, percent, seconds
from twoshift.ui.sampler import Watched

__all__ = ["columns_of", "event_of", "shown_of"]

_POINT = ("at", "p50", "p99", "rate", "live", "harvested", "waiting", "replicas", "refused")
_FOR_ALL = 3  # of a point: what is seen by who may not know what others ask


def event_of(watched: Watched, sight: Sight, has_point: bool) -> dict[str, Any]:
    """Texts by figure, and the newest point of its charts."""
    told: dict[str, Any] = {"text": texts_of(watched, sight), "good": keeps(watched)}
    if sight.all:
        told["shares"] = {name: round(share, 4) for _, name, share in _bars(watched.now)}
    if has_point:
        told["point"] = point_of(watched.now, sight)
    return told


def shown_of(watched: Watched, sight: Sight) -> dict[str, Any]:
    """As the page has it at first."""
    objective = objective_of(watched.deployment)
    return {
        "name": watched.deployment.name,
        "text": texts_of(watched, sight),
        "good": keeps(watched),
        "sees_all": sight.all,
        "objective": _told(objective),
        "slo_s": None if objective is None or objective.tpot_s is not None else objective.slo_s,
        "versions": versions_of(watched.deployment),
        "refusals": sorted(watched.deployment.metrics.total().refusals.items()) if sight.all else [],
        "bars": _bars(watched.now) if sight.all else None,
    }


def keeps(watched: Watched) -> bool | None:
    """Whether the p99 is inside the objective; None where nobody asked, or the objective is of tokens."""
    objective, p99_s = objective_of(watched.deployment), watched.now.p99_s
    if objective is None or objective.tpot_s is not None or p99_s is None:
        return None
    return p99_s <= objective.slo_s


def texts_of(watched: Watched, sight: Sight) -> dict[str, str]:
    """Every figure as it is read; those that tell of others' requests only to who may know."""
    now, deployment = watched.now, watched.deployment
    told = {"state": _state(deployment), "p50": seconds(now.p50_s), "p99": seconds(now.p99_s)}
    if not sight.all:
        return told
    cost = watched.job_cost()
    return told | {
        "rate": f"{number(now.requests_per_s)}/s",
        "rows": f"{number(now.rows_per_s)}/s",
        "batch_rows": f"{number(now.batch_rows_per_s)}/s",
        "refused": f"{number(now.refused_per_s)}/s",
        "failed": f"{number(now.failed_per_s)}/s",
        "live": percent(now.live),
        "harvested": percent(now.harvested),
        "idle": percent(now.idle),
        "waiting": f"{now.waiting:,}",
        "batch_waiting": f"{now.batch_waiting:,}",
        "replicas": _replicas(ReplicaCounts(now.replicas, now.starting)),
        "alone": seconds(cost.alone),
        "beside": seconds(cost.beside),
    }


def point_of(figures: Figures, sight: Sight) -> list[float | None]:
    """A point of the charts, in milliseconds, shares and rates."""
    p50, p99 = (None if each is None else float(f"{1e3 * each:.4g}") for each in (figures.p50_s, figures.p99_s))
    rest = (figures.requests_per_s, figures.live, figures.harvested)
    counts = [figures.waiting, figures.replicas, float(f"{figures.refused_per_s:.3g}")]
    made = [round(figures.at), p50, p99, *(float(f"{each:.3g}") for each in rest), *counts]
    return made if sight.all else made[:_FOR_ALL]


def columns_of(points: Sequence[Figures], sight: Sight) -> dict[str, Sequence[float | None]]:
    """Points as the chart library takes them."""
    names = _POINT if sight.all else _POINT[:_FOR_ALL]
    rows = [point_of(each, sight) for each in points]
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def versions_of(deployment: Deployment) -> list[tuple[str, str, float]]:
    """That answer, with their role and share."""
    split = deployment.split
    if split is None:
        return [(deployment.version, "stable", 1.0)]
    beside = (split.candidate.version, "candidate", split.share)
    return [(deployment.version, "stable", 1.0 - split.share), beside]


def _bars(now: Figures) -> list[tuple[str, str, float]]:
    return [("blue", "live", now.live), ("orange", "harvested", now.harvested), ("muted", "idle", now.idle)]


def _told(objective: Objective | None) -> str:
    if objective is None:
        return "—"
    if objective.tpot_s is None:
        return f"p99 within {seconds(objective.slo_s)}"
    return f"first token within {seconds(objective.slo_s)}, {seconds(objective.tpot_s)} per further token"


def _state(deployment: Deployment) -> str:
    if deployment.state is DeploymentState.READY:
        health = deployment.health() if deployment.serving is not None else None
        return "ready" if health is None or health.healthy else f"not healthy: {health.reason}"
    return deployment.why_not or str(deployment.state)


def _replicas(counts: ReplicaCounts) -> str:
    return f"{counts.ready:,}" + (f" (+{counts.starting:,} starting)" if counts.starting else "")
