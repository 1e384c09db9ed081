"""The HTML report of `sim rollout`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twoshift import report
from twoshift._version import __version__
from twoshift.cli.rollout_page import rollout_sections
from twoshift.policy.rollout_values import Stage
from twoshift.sim.rollout import RolloutStudy
from twoshift.units import format_duration

__all__ = ["rollouts_report"]


def rollouts_report(studies: Mapping[str, RolloutStudy], entries: Mapping[str, list[list[Any]]]) -> str:
    """What became of the candidates, and the evidence of the first rollout of each scenario."""
    sections = [report.Section("Scenarios", [_table(studies)])]
    for name, record in entries.items():
        sections += rollout_sections(record, name)
    runs = len(next(iter(studies.values())).runs)
    subtitle = f"{runs} simulated rollouts per scenario; the curves show the first rollout."
    return report.page("Rollouts", subtitle, sections, f"Made by twoshift {__version__}, sim rollout")


def _table(studies: Mapping[str, RolloutStudy]) -> report.Block:
    headers = ["scenario", "promoted", "rolled back", "requests", "answered by candidate", "largest share", "time"]
    rows = [
        [
            name,
            f"{study.share_of(Stage.PROMOTED):.0%}",
            f"{study.share_of(Stage.ROLLED_BACK):.0%}",
            round(study.median("requests")),
            round(study.median("exposed")),
            f"{study.median('largest_share'):.0%}",
            format_duration(study.median("seconds")),
        ]
        for name, study in studies.items()
    ]
    return report.table(headers, rows)
