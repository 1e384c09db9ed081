"""`sim rollout`: what the judge of a rollout does with a candidate, before anybody trusts it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.output import note, plain, pretty, show, table
from twoshift.cli.params import JsonFlag, given_of, with_settings
from twoshift.cli.progress import progress_bar
from twoshift.cli.sim.app import app
from twoshift.cli.sim.rollout_replay import replay_rollout
from twoshift.cli.sim.settings import RolloutSimSettings
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.units import format_duration

if TYPE_CHECKING:
    from twoshift.sim.rollout import RolloutSpec, RolloutStudy

__all__ = ["rollout_command"]

_OWN = "yours"
_MOST_REQUESTS = 60_000  # of one rollout, unless its scenario says otherwise


@command(
    app,
    "rollout",
    "twoshift sim rollout --rate 100 --slo-ms 80 --runs 5",
    fields={"rate_per_s": "rate", "disagreement_bound": "bound"},
)
@with_settings(RolloutSimSettings)
def rollout_command(*, as_json: JsonFlag = False, **given: Any) -> None:
    """Simulate rollouts: which candidates are promoted or rolled back, and after how many requests.

    --stable-failures, --candidate-failures, --slower and --disagreement describe a candidate of your own. Without these
    options, the built-in scenarios run.
    """
    settings = RolloutSimSettings(**given_of(RolloutSimSettings, given))
    record, report = settings.record, settings.report
    check_writable(report, "--report", others=[record, settings.replay])
    check_writable(record, "--record", others=[settings.replay])
    if settings.replay:
        raise typer.Exit(replay_rollout(settings.replay, report, as_json))
    specs = _specs(settings)
    if record and len(specs) > 1:
        raise Inapplicable("--record", record, "for several scenarios: choose one with --scenario")
    studies = _simulate(specs, settings.runs)
    _write(specs, record, report, studies)
    show(as_json, {name: _data(study) for name, study in studies.items()}, _table(studies), _words(studies))


def _ladder(given: str) -> tuple[float, ...]:
    try:
        parts = [each.strip() for each in given.split(",") if each.strip()]
        return tuple(float(each.removesuffix("%")) / (100 if each.endswith("%") else 1) for each in parts)
    except ValueError:
        raise InvalidInput("--ladder", given, "shares such as 1%,5%,25%,100%") from None


def _specs(settings: RolloutSimSettings) -> dict[str, RolloutSpec]:
    """A scenario that has a rate of its own keeps it."""
    from twoshift.policy.rollout_values import RolloutSettings
    from twoshift.sim.rollout import SCENARIOS, RolloutSpec

    own = RolloutSettings(
        ladder=_ladder(settings.ladder),
        alpha=settings.alpha,
        shadow=not settings.no_shadow,
        slo_s=None if settings.slo_ms is None else settings.slo_ms / 1e3,
        disagreement_bound=settings.bound or None,
    )
    spec = RolloutSpec(settings=own, most_requests=_MOST_REQUESTS, seed=settings.seed)
    spec = spec if settings.rate is None else dataclasses.replace(spec, rate_per_s=settings.rate)
    if settings.candidate:
        return {_OWN: dataclasses.replace(spec, **settings.candidate)}
    for name in settings.scenario:
        if name not in SCENARIOS:
            raise InvalidInput("--scenario", name, f"one of {', '.join(SCENARIOS)}")
    return {name: dataclasses.replace(spec, **SCENARIOS[name][1]) for name in settings.scenario or SCENARIOS}


def _simulate(specs: dict[str, RolloutSpec], runs: int) -> dict[str, RolloutStudy]:
    from twoshift.sim.rollout import simulate_rollouts

    studies = dict[str, Any]()
    for name, spec in specs.items():
        with progress_bar(f"Simulating {name}") as progress:
            studies[name] = simulate_rollouts(spec, runs, progress)
    return studies


def _write(
    specs: dict[str, RolloutSpec], record: str | None, report: str | None, studies: dict[str, RolloutStudy]
) -> None:
    if not (record or report):
        return
    from twoshift.cli.sim.rollout_report import rollouts_report
    from twoshift.sim.rollout import simulate_rollout

    entries = dict[str, list[list[Any]]]()
    for name, spec in specs.items():
        entries[name] = []
        simulate_rollout(spec, sink=entries[name].append)
    if record:
        lines = [json.dumps(entry, separators=(",", ":")) for each in entries.values() for entry in each]
        write_text(record, "\n".join(lines) + "\n", "--record")
        note(f"Record: {record}, {len(lines):,} entries")
    if report:
        write_text(report, rollouts_report(studies, entries), "--report")
        note(f"Report: {report}")


def _data(study: RolloutStudy) -> dict[str, Any]:
    from twoshift.policy.rollout_values import Stage

    return {
        "runs": len(study.runs),
        "promoted": study.share_of(Stage.PROMOTED),
        "rolled_back": study.share_of(Stage.ROLLED_BACK),
        "median_requests": study.median("requests"),
        "median_exposed": study.median("exposed"),
        "mean_failed": sum(run.failed for run in study.runs) / len(study.runs),
        "median_seconds": study.median("seconds"),
        "first": plain(study.runs[0]),
    }


def _table(studies: dict[str, RolloutStudy]) -> Any:
    columns = ["<scenario", "promoted", "rolled back", "waiting", "requests", "exposed", "failed", "share", "time"]
    rows = list[list[str]]()
    for name, study in studies.items():
        data = _data(study)
        rows.append([
            name,
            f"{data['promoted']:.0%}",
            f"{data['rolled_back']:.0%}",
            f"{1 - data['promoted'] - data['rolled_back']:.0%}",
            pretty(data["median_requests"]),
            pretty(data["median_exposed"]),
            pretty(data["mean_failed"], 3),
            f"{study.median('largest_share'):.0%}",
            format_duration(data["median_seconds"]),
        ])  # fmt: skip
    return table(columns, rows, title="Results of the rollouts by scenario")


def _words(studies: dict[str, RolloutStudy]) -> str:
    from twoshift.sim.rollout import SCENARIOS

    lines = [
        "Exposed requests are live requests that the candidate answered before it was promoted or rolled back; the "
        "column `failed` is the mean number of exposed requests that failed. The share is the candidate's largest "
        "share. Requests, shares and times are medians."
    ]
    for name, study in studies.items():
        about = f" ({SCENARIOS[name][0]})" if name in SCENARIOS else ""
        lines.append(f"{name}{about}: {study.runs[0].decision.reason}")
    return "\n".join(lines)
