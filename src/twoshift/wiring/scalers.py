"""Who sizes the fleets, by which signals, and what is written down and shown of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twoshift.config import home
from twoshift.errors import InvalidInput
from twoshift.fleet.llm_model import FleetLlm
from twoshift.fleet.model import FleetModel
from twoshift.fleet.observer import Backlog
from twoshift.fleet.scale_log import ScaleLog
from twoshift.fleet.scaler import Scaler
from twoshift.fleet.scaling import decisions, scaler_for, signals
from twoshift.serve.deployments import Deployment
from twoshift.serve.exposition import MoreMetrics
from twoshift.serve.settings import ServeSettings

__all__ = ["scalers_for", "scaling_metrics"]

BacklogOf = Callable[[str], list[tuple[int, float, int]]]  # of a model: rows, seconds left and replicas of each job


def scalers_for(
    models: Mapping[str, Deployment], settings: ServeSettings, backlog: BacklogOf, note: Callable[[str], None]
) -> dict[str, Scaler]:
    """Who sizes the fleets of the models whose replicas are scaled, with a decision log each; not started."""
    found: dict[str, Scaler] = {}
    for name, model in models.items():
        each = settings.models[name]
        fleet = model.backend
        if not isinstance(fleet, FleetModel | FleetLlm) or fleet.scales_itself:
            continue
        if each.is_scaled and each.max_replicas is not None:
            least = 1 if each.min_replicas is None else each.min_replicas
            policy = each.scale.policy(least, each.max_replicas, each.objective_s)
            scaler = scaler_for(model, fleet, policy, _backlogs(backlog, name), _scale_log(name, settings, note))
            fleet.group.wake_up.wanted = scaler.look_now
            found[name] = scaler
            if least == 0 and each.objective_s is not None and fleet.cold_start_s > each.objective_s:
                note(
                    f"{name} keeps one replica, although min_replicas is 0: a cold start takes "
                    f"{fleet.cold_start_s:.2g} s, which is longer than the objective of {each.objective_s:g} s."
                )
    return found


def _scale_log(name: str, settings: ServeSettings, note: Callable[[str], None]) -> ScaleLog | None:
    """None where another server has it, and no folder was named for this one."""
    folder = home() / "scale" if settings.scale_log is None else Path(settings.scale_log).expanduser()
    try:
        return ScaleLog(folder / f"{quote(name, safe='')}.jsonl")
    except InvalidInput as error:
        if settings.scale_log is not None:
            raise
        note(f"Scaling decisions are not logged: {error}; set --scale-log to another folder.")
        return None


def scaling_metrics(models: Mapping[str, Deployment], scalers: Mapping[str, Scaler], backlog: BacklogOf) -> MoreMetrics:
    """What an autoscaler outside may read, and what those here have decided."""

    def metrics() -> Iterator[Any]:
        yield from signals(models, lambda name: _backlogs(backlog, name)())
        yield from decisions(dict(scalers))  # they come and go with their deployments

    return metrics


def _backlogs(backlog: BacklogOf, model: str) -> Callable[[], list[Backlog]]:
    return lambda: [Backlog(*each) for each in backlog(model)]
