"""Write what the program itself knows best: docs/cli.md, docs/configuration.md, and the picture in the README."""

from __future__ import annotations

from pathlib import Path

from twoshift.cli.configuration_docs import render_configuration
from twoshift.cli.docs import render
from twoshift.cli.sim.day_report import devices_figure
from twoshift.policy.cost import CallCost
from twoshift.report import svg_file
from twoshift.sim.day import DaySpec, simulate_day
from twoshift.sim.lanes import LanesSpec

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Rewrite them and say so."""
    (DOCS / "cli.md").write_text(render(), encoding="utf-8")
    (DOCS / "configuration.md").write_text(render_configuration(), encoding="utf-8")
    lanes = LanesSpec(CallCost.line(0.004, 0.00025), max_batch=32, slo_s=0.05, load=1.0)
    day = simulate_day(DaySpec(lanes, peak_per_s=20_000, batch_items=4e8))
    (DOCS / "day.svg").write_text(svg_file(devices_figure(day)), encoding="utf-8")
    print("Wrote docs/cli.md, docs/configuration.md and docs/day.svg")


if __name__ == "__main__":
    main()
