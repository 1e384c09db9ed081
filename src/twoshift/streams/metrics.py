"""A stream's figures for Prometheus."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.streams.progress import StreamCounts, StreamSnapshot

__all__ = ["exposition", "served"]

_COUNTERS = (
    ("windows", "Windows committed."),
    ("rows", "Rows committed."),
    ("errors", "Rows without a result."),
    ("dead_letters", "Rows and files in the dead-letter folder."),
    ("merged", "Parts merged into larger ones."),
)
_GAUGES = (
    ("rows_per_s", "rows_per_second", "Rows committed a second, over the last minutes."),
    ("lag_rows", "lag_rows", "Rows that wait at the source."),
    ("lag_s", "lag_seconds", "How long the oldest row that is not committed has waited."),
    ("window_s", "window_seconds", "From the arrival of the last window's oldest row to its commit."),
    ("window_rows", "window_rows", "Rows of the last window."),
    ("in_time_share", "in_time_ratio", "Share of the rows that were committed within the objective."),
    ("parts", "parts", "Parts in the output folder."),
    ("usd", "usd", "Cost of this run in dollars."),
)


def exposition(now: StreamSnapshot, objective_s: float) -> Iterator[object]:
    """As prometheus_client collects them."""
    core = needed("prometheus_client.core", "serve", "--metrics-port", "metrics_port")
    for name, about in _COUNTERS:
        yield core.CounterMetricFamily(f"twoshift_stream_{name}", about, value=getattr(now, name))
    for field, name, about in _GAUGES:
        value = getattr(now, field)
        if value is not None:
            yield core.GaugeMetricFamily(f"twoshift_stream_{name}", about, value=value)
    about = "How long after its arrival a row was committed, over the last minutes."
    fresh = core.GaugeMetricFamily("twoshift_stream_freshness_seconds", about, labels=["quantile"])
    for quantile, value in (("0.5", now.fresh_p50_s), ("0.99", now.fresh_p99_s)):
        if value is not None:
            fresh.add_metric([quantile], value)
    yield fresh
    about = "Freshness objective."
    yield core.GaugeMetricFamily("twoshift_stream_objective_seconds", about, value=objective_s)
    seconds = 0.0 if now.catch_up is None else now.catch_up.seconds
    about = "Predicted time until the stream is up to date; +Inf: rows arrive faster than they are scored."
    yield core.GaugeMetricFamily("twoshift_stream_catch_up_seconds", about, value=min(seconds, math.inf))
    about = "How often something had to be tried again, by what failed."
    problems = core.CounterMetricFamily("twoshift_stream_problems", about, labels=["kind"])
    for kind, count in now.problems:
        problems.add_metric([kind], count)
    yield problems


@contextlib.contextmanager
def served(counts: StreamCounts, objective_s: float, port: int) -> Iterator[None]:
    """`/metrics` on a port, until the end of the block; raises InvalidInput where it cannot be had."""
    client = needed("prometheus_client", "serve", "--metrics-port", "metrics_port")

    class _Figures:
        def collect(self) -> Iterator[object]:
            return exposition(counts.snapshot, objective_s)

    registry = client.CollectorRegistry()
    registry.register(_Figures())
    try:
        server, _ = client.start_http_server(port, registry=registry)
    except OSError as error:
        raise InvalidInput("metrics_port", port, f"a port that is free ({error.strerror})") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
