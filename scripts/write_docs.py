"""Write what the program itself knows best: the pages of docs/ that are references, and the picture in the README."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from twoshift import Server
from twoshift.cli.configuration_docs import render_configuration
from twoshift.cli.docs import render
from twoshift.cli.http_docs import render_http, render_http_types
from twoshift.cli.metrics_docs import render_metrics
from twoshift.cli.sim.day_report import devices_figure
from twoshift.policy.cost import CallCost
from twoshift.report import svg_file
from twoshift.sim.day import DaySpec, simulate_day
from twoshift.sim.lanes import LanesSpec

DOCS = Path(__file__).resolve().parent.parent / "docs"


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of a server with keys, so that its document says which scope each operation needs."""
    keys = {"docs": {"sha256": "0" * 64}}
    with tempfile.TemporaryDirectory() as home:
        os.environ["TWOSHIFT_HOME"] = home
        with Server("twoshift.quickstart.tickets:Words", slo_ms=50, port=0, keys=keys) as server:
            yield server.address


def day() -> str:
    """The picture in the README."""
    lanes = LanesSpec(CallCost.line(0.004, 0.00025), max_batch=32, slo_s=0.05, load=1.0)
    return svg_file(devices_figure(simulate_day(DaySpec(lanes, peak_per_s=20_000, batch_items=4e8))))


def main() -> None:
    """Rewrite them and say so."""
    with served() as address:
        document: dict[str, Any] = httpx.get(f"{address}/openapi.json").raise_for_status().json()
    pages = {
        "cli.md": render(),
        "configuration.md": render_configuration(),
        "http.md": render_http(document),
        "http-types.md": render_http_types(document),
        "metrics.md": render_metrics(),
        "day.svg": day(),
    }
    for name, text in pages.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    print(f"Wrote {', '.join(f'docs/{name}' for name in pages)}")


if __name__ == "__main__":
    main()
