"""A stream's figures for Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.streams.progress import StreamCounts, StreamSnapshot

__all__ = ["served", "stream_metrics"]

Streams = Mapping[tuple[str, ...], tuple[StreamSnapshot, float]]
Family = tuple[str, str, str, tuple[str, ...], Sequence[tuple[Any, ...]]]  # as a server's metrics have them

_COUNTERS = (
    ("windows", "Windows that the stream has committed."),
    ("rows", "Rows that the stream has committed."),
    ("errors", "Committed rows that have an error instead of a result."),
    ("dead_letters", "Rows and files that the stream has put into the dead-letter folder."),
    ("merged", "Parts that were merged into larger parts."),
)
_GAUGES = (
    ("rows_per_s", "rows_per_second", "Committed rows per second, over the last minutes."),
    ("lag_rows", "lag_rows", "Rows at the source that the stream has not read yet."),
    ("lag_s", "lag_seconds", "Waiting time of the oldest row that is not committed yet."),
    (
        "window_s",
        "window_seconds",
        "For the last window: time from the arrival of the oldest row to the commit of the window.",
    ),
    ("window_rows", "window_rows", "Number of rows in the last window."),
    ("in_time_share", "in_time_ratio", "Share of the rows that were committed within the freshness objective."),
    ("parts", "parts", "Parts in the output folder."),
    ("usd", "usd", "Cost of this run in dollars."),
)


def stream_metrics(streams: Streams, labels: tuple[str, ...] = ()) -> Iterator[Family]:
    """Of streams by the values of the labels: each with how it stands, and its freshness objective."""

    def samples(value: Callable[[StreamSnapshot], Any]) -> list[tuple[Any, ...]]:
        found = [(*names, value(now)) for names, (now, _) in streams.items()]
        return [each for each in found if each[-1] is not None]

    for name, about in _COUNTERS:
        yield "counter", f"stream_{name}", about, labels, samples(attrgetter(name))
    for field, name, about in _GAUGES:
        yield "gauge", f"stream_{name}", about, labels, samples(attrgetter(field))
    about = "Time from a row's arrival to its commit, over the last minutes."
    fresh = [
        (*names, quantile, seconds)
        for names, (now, _) in streams.items()
        for quantile, seconds in (("0.5", now.fresh_p50_s), ("0.99", now.fresh_p99_s))
        if seconds is not None
    ]
    yield "gauge", "stream_freshness_seconds", about, (*labels, "quantile"), fresh
    objectives = [(*names, objective_s) for names, (_, objective_s) in streams.items()]
    yield "gauge", "stream_objective_seconds", "Freshness objective of the stream.", labels, objectives
    about = "Predicted time until the stream is up to date; +Inf if rows arrive faster than the stream scores them."
    left = samples(lambda now: 0.0 if now.catch_up is None else now.catch_up.seconds)
    yield "gauge", "stream_catch_up_seconds", about, labels, left
    about = "Operations that failed and were retried, by kind."
    problems = [(*names, kind, count) for names, (now, _) in streams.items() for kind, count in now.problems]
    yield "counter", "stream_problems", about, (*labels, "kind"), problems


@contextlib.contextmanager
def served(counts: StreamCounts, objective_s: float, port: int) -> Iterator[None]:
    """`/metrics` on a port, until the end of the block; raises InvalidInput where it cannot be had."""
    client = needed("prometheus_client", "serve", "--metrics-port", "metrics_port")
    core = needed("prometheus_client.core", "serve", "--metrics-port", "metrics_port")

    class _Figures:
        def collect(self) -> Iterator[object]:
            kinds = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
            for kind, name, about, labels, samples in stream_metrics({(): (counts.snapshot, objective_s)}):
                family = kinds[kind](f"twoshift_{name}", about, labels=labels)
                for *values, value in samples:
                    family.add_metric(values, value)
                yield family

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
