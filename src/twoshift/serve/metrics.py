"""What the server counts; exposed in Prometheus's text format."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twoshift.serve.stages import STAGES, Stages

__all__ = ["Histogram", "ModelMetrics", "ServerMetrics"]

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Counts by bucket. Of one thread: the hot paths observe it millions of times."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds and how many lie at or below each, as Prometheus has it."""
        summed, found = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            summed += count
            found.append((bound, summed))
        return found


class ModelMetrics:
    """One model's; observed on the server's loop alone."""

    def __init__(self) -> None:
        self.stages = {name: Histogram(_SECONDS) for name in STAGES}
        self.latency = Histogram(_SECONDS)
        self.call_rows = Histogram(_ROWS)
        self.requests: dict[int, int] = {}  # status -> how many
        self.refusals: dict[str, int] = {}  # reason -> how many
        self.rows = self.tokens = 0

    def answered(self, stages: Stages, rows: int, tokens: int) -> None:
        """A request that has its results."""
        for name, histogram in self.stages.items():
            histogram.observe(getattr(stages, name))
        self.call_rows.observe(stages.call_rows)
        self.rows += rows
        self.tokens += tokens

    def replied(self, status: int, seconds: float, refusal: str | None) -> None:
        """A request that has its reply."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.latency.observe(seconds)
        if refusal is not None:
            self.refusals[refusal] = self.refusals.get(refusal, 0) + 1


class ServerMetrics:
    """A collector for prometheus-client, over every model."""

    def __init__(self, models: Mapping[str, Any], connections: Callable[[], int]) -> None:
        self._models, self._connections = models, connections

    def text(self) -> tuple[bytes, bytes]:
        """The page and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)  # type: ignore[arg-type]
        return generate_latest(registry), CONTENT_TYPE_LATEST.encode()

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        def counter(name: str, about: str, labels: tuple[str, ...] = ()) -> Any:
            return CounterMetricFamily(f"twoshift_{name}", about, labels=("model", *labels))

        def gauge(name: str, about: str, labels: tuple[str, ...] = ()) -> Any:
            return GaugeMetricFamily(f"twoshift_{name}", about, labels=("model", *labels))

        def histogram(name: str, about: str, labels: tuple[str, ...] = ()) -> Any:
            return HistogramMetricFamily(f"twoshift_{name}", about, labels=("model", *labels))

        connections = GaugeMetricFamily("twoshift_http_connections", "Open connections.")
        connections.add_metric([], self._connections())
        requests = counter("requests", "Requests by status.", ("status",))
        refusals = counter("refusals", "Requests refused, by reason.", ("reason",))
        stages = histogram("stage_seconds", "Time of a request's stages.", ("stage",))
        latency = histogram("request_seconds", "From a request's first byte to its reply.")
        call_rows = histogram("call_rows", "Rows of the calls that live rows rode in.")
        rows = counter("rows", "Rows by lane.", ("lane",))
        tokens = counter("tokens", "Tokens by lane.", ("lane",))
        device = counter("device_seconds", "Device time by lane.", ("lane",))
        riding = counter("riding_rows", "Background rows in calls with live rows.")
        calls = counter("calls", "Forward calls.")
        failed = counter("failed_calls", "Forward calls that failed, split and tried again.")
        waiting = gauge("waiting_rows", "Live rows that wait for the device.")
        oldest = gauge("oldest_wait_seconds", "How long the oldest live row has waited.")
        healthy = gauge("healthy", "1 while the model's loop lives and keeps up.")
        for name, model in self._models.items():
            seen, stats, health = model.metrics, model.engine.stats(), model.engine.health(model.longest_wait_s)
            for status, count in sorted(seen.requests.items()):
                requests.add_metric([name, str(status)], count)
            for reason, count in sorted(seen.refusals.items()):
                refusals.add_metric([name, reason], count)
            for stage, each in seen.stages.items():
                stages.add_metric([name, stage], each.buckets(), each.total)
            latency.add_metric([name], seen.latency.buckets(), seen.latency.total)
            call_rows.add_metric([name], seen.call_rows.buckets(), seen.call_rows.total)
            for lane, use in stats.lanes.items():
                rows.add_metric([name, str(lane)], use.rows)
                tokens.add_metric([name, str(lane)], use.tokens)
                device.add_metric([name, str(lane)], use.device_s)
            riding.add_metric([name], sum(use.riding_rows for use in stats.lanes.values()))
            calls.add_metric([name], stats.calls)
            failed.add_metric([name], stats.failed_calls)
            waiting.add_metric([name], model.engine.waiting_rows())
            oldest.add_metric([name], health.oldest_wait_s)
            healthy.add_metric([name], float(health.healthy))
        yield from (connections, requests, refusals, stages, latency, call_rows, rows, tokens, device, riding, calls)
        yield from (failed, waiting, oldest, healthy)
