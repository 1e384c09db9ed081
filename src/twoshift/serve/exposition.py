"""The metrics of every model in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twoshift.engine.stats import CALL_ROWS, EngineStats, Health, Queue
from twoshift.serve.counts import MetricCounts
from twoshift.serve.deployments import Deployment
from twoshift.serve.llm.language_model import is_language_model
from twoshift.serve.llm_derived import LlmDerived
from twoshift.serve.metrics import SECONDS, counted
from twoshift.types import Lane, ReplicaCounts

__all__ = ["MoreMetrics", "ServerMetrics"]

MoreMetrics = Callable[[], Iterable[tuple[str, str, str, tuple[str, ...], Sequence[tuple[Any, ...]]]]]
# Of each family: its kind, name, what it is, its labels; and its samples: the labels' values, then their own.
# A name that has a colon is somebody else's, and stays as it is.

_ONLINE = str(Lane.ONLINE)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One model, looked at once."""

    counts: MetricCounts
    stats: EngineStats
    health: Health
    waiting: Mapping[Lane, Queue]
    replicas: ReplicaCounts
    within_slo: int  # requests, or sequences of a language model
    outside_slo: int
    objectives_s: Mapping[str, float]  # what it is of -> seconds


@dataclass(frozen=True, slots=True)
class _Family:
    kind: str
    name: str
    about: str
    labels: tuple[str, ...]  # after the model
    samples: Callable[[_Seen], Iterable[tuple[Any, ...]]]  # the labels' values, then the sample's


def _stages(seen: _Seen) -> Iterator[tuple[Any, ...]]:
    for stage, each in seen.counts.stages.items():
        yield _ONLINE, stage, counted(each.counts, SECONDS), each.total


def _latency(seen: _Seen) -> Iterator[tuple[Any, ...]]:
    each = seen.counts.latency
    yield _ONLINE, counted(each.counts, SECONDS), each.total


def _call_rows(seen: _Seen) -> Iterator[tuple[Any, ...]]:
    for lane, each in seen.stats.call_rows.items():
        yield str(lane), counted(each.counts, CALL_ROWS), each.rows


def _by_lane(value: str) -> Callable[[_Seen], Iterator[tuple[Any, ...]]]:
    return lambda seen: ((str(lane), getattr(use, value)) for lane, use in seen.stats.lanes.items())


def _of_stats(value: str) -> Callable[[_Seen], list[tuple[Any, ...]]]:
    return lambda seen: [(getattr(seen.stats, value),)]


_FAMILIES = (
    _Family("counter", "requests", "Requests by status.", ("lane", "status"),
            lambda seen: ((_ONLINE, str(status), n) for status, n in sorted(seen.counts.requests.items()))),
    _Family("counter", "refusals", "Requests refused, by reason.", ("lane", "reason"),
            lambda seen: ((_ONLINE, why, n) for why, n in sorted(seen.counts.refusals.items()))),
    _Family("counter", "offered_rows", "Rows that clients sent, including refused ones.", ("lane",),
            lambda seen: [(_ONLINE, seen.counts.offered_rows)]),
    _Family("counter", "refused_rows", "Rows refused because the server had no free capacity.", ("lane",),
            lambda seen: [(_ONLINE, seen.counts.refused_rows)]),
    _Family("counter", "precomputed_rows", "Rows looked up in the precomputed answers, by result.",
            ("found",), lambda seen: sorted(seen.counts.looked_up.items())),
    _Family("counter", "written_back_rows", "Rows computed live and passed to write-back, by outcome.",
            ("outcome",), lambda seen: sorted(seen.counts.written_back.items())),
    _Family("histogram", "stage_seconds", "Time spent in each stage of a request.", ("lane", "stage"), _stages),
    _Family("histogram", "request_seconds", "Time from a request's first byte to its reply.", ("lane",), _latency),
    _Family("histogram", "call_rows", "Rows per forward call, by the lane that started the call.", ("lane",),
            _call_rows),
    _Family("counter", "rows", "Rows answered.", ("lane",), _by_lane("rows")),
    _Family("counter", "tokens", "Tokens of the answered rows.", ("lane",), _by_lane("tokens")),
    _Family("counter", "riding_rows", "Batch rows that were processed in calls with live rows.", ("lane",),
            _by_lane("riding_rows")),
    _Family("counter", "device_seconds", "Device time used.", ("lane",), _by_lane("device_s")),
    _Family("counter", "wait_seconds", "Total time that rows waited for the device.", ("lane",),
            lambda seen: ((str(lane), waited_s) for lane, waited_s in seen.stats.waits_s.items())),
    _Family("counter", "live_rows", "Answered live rows, by whether the device was also running batch "
                                    "rows.", ("beside",),
            lambda seen: ((beside, each.rows) for beside, each in seen.stats.live.items())),
    _Family("counter", "live_seconds", "Total time from submission to result, over all live rows.", ("beside",),
            lambda seen: ((beside, each.seconds) for beside, each in seen.stats.live.items())),
    _Family("counter", "calls", "Forward calls.", (), _of_stats("calls")),
    _Family("counter", "failed_calls",
            "Forward calls that failed. A failed call with several rows is split and retried.", (),
            _of_stats("failed_calls")),
    _Family("counter", "out_of_memory_calls", "Forward calls that ran out of memory.", (),
            _of_stats("out_of_memory")),
    _Family("gauge", "max_call_tokens", "Current limit of tokens per call.", (), _of_stats("max_tokens")),
    _Family("gauge", "waiting_rows", "Rows that are waiting for the device.", ("lane",),
            lambda seen: ((str(lane), each.rows) for lane, each in seen.waiting.items())),
    _Family("gauge", "oldest_wait_seconds", "Waiting time of the oldest row in the queue.", ("lane",),
            lambda seen: ((str(lane), each.oldest_s) for lane, each in seen.waiting.items())),
    _Family("counter", "slo_requests", "Live requests (language models: sequences), by whether they met the latency "
            "objective. Refused and failed requests count as outside.", ("slo",),
            lambda seen: (("within", seen.within_slo), ("outside", seen.outside_slo))),
    _Family("gauge", "objective_seconds", "Latency objective for 99 % of the requests, by kind of latency.", ("of",),
            lambda seen: seen.objectives_s.items()),
    _Family("gauge", "replicas", "Replicas, by state.", ("state",),
            lambda seen: (("ready", seen.replicas.ready), ("starting", seen.replicas.starting))),
    _Family("gauge", "healthy", "1 if the model's engine runs and keeps up with its requests, else 0.", (),
            lambda seen: [(float(seen.health.healthy),)]),
)  # fmt: skip


class ServerMetrics:
    """A collector for prometheus-client, over every model."""

    def __init__(
        self,
        models: Mapping[str, Deployment],
        gauges: Mapping[str, tuple[str, Callable[[], float]]],
        more: Sequence[MoreMetrics] = (),
    ) -> None:
        """`gauges` are the server's own: name -> what it is, and its value. `more` are of others."""
        self._models, self._gauges, self._more = models, gauges, more

    def text(self) -> tuple[bytes, bytes]:
        """The page and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)  # type: ignore[arg-type]
        return generate_latest(registry), CONTENT_TYPE_LATEST.encode()

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        for name, (about, value) in self._gauges.items():
            yield GaugeMetricFamily(f"twoshift_{name}", about, value())
        seen = {name: _look(model) for name, model in self._models.items()}
        for family in _FAMILIES:
            labels = ("model", *family.labels)
            made: Any = kinds[family.kind](f"twoshift_{family.name}", family.about, labels=labels)
            for name, model in seen.items():
                for sample in family.samples(model):
                    made.add_metric([name, *sample[: len(family.labels)]], *sample[len(family.labels) :])
            yield made
        yield from _by_version(kinds, self._models)
        for kind, name, about, labels, samples in (family for each in self._more for family in each()):
            made = kinds[kind](name if ":" in name else f"twoshift_{name}", about, labels=labels)
            for sample in samples:
                made.add_metric(sample[: len(labels)], *sample[len(labels) :])
            yield made


def _by_version(kinds: Mapping[str, Any], models: Mapping[str, Deployment]) -> Iterator[Any]:
    """What each version has replied, and how much it is given."""
    labels = ("model", "version")
    requests = kinds["counter"](
        "twoshift_version_requests", "Requests by version and status.", labels=(*labels, "status")
    )
    latency = kinds["histogram"](
        "twoshift_version_request_seconds", "Time from a request's first byte to its reply, by version.", labels=labels
    )
    share = kinds["gauge"]("twoshift_version_share", "Share of live requests, by version.", labels=(*labels, "role"))
    for name, model in models.items():
        for each in model.by_version():
            for status, count in sorted(each.requests.items()):
                requests.add_metric([name, each.version, str(status)], count)
            if each.latency.counts:
                buckets = counted(each.latency.counts, SECONDS)
                latency.add_metric([name, each.version], buckets, each.latency.total)
            if each.role != "past":
                share.add_metric([name, each.version, each.role], each.share)
    yield from (requests, latency, share)


def _look(model: Deployment) -> _Seen:
    counts, backend, derived = model.metrics.total(), model.backend, model.derived
    more, objectives_s = (0, 0), {"request": derived.slo_s}
    if is_language_model(backend) and isinstance(derived, LlmDerived):
        more, objectives_s = backend.generated.slo_counts(), {"ttft": derived.ttft_s, "tpot": derived.tpot_s}
    slo = (counts.within_slo + more[0], counts.outside_slo + more[1])
    return _Seen(counts, model.stats(), model.health(), model.waiting(), model.replicas(), *slo, objectives_s)
