"""docs/metrics.md: every metric of a server and of a stream, written from the code that exports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from twoshift.rollout_services import rollout_metrics
from twoshift.serve.deployments import Deployments
from twoshift.serve.exposition import MoreMetrics, ServerMetrics
from twoshift.serve.front import host_gauges
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.llm.exposition import llm_families
from twoshift.serve.precomputed_tables import PrecomputedTables
from twoshift.serve.tenant_metrics import tenant_metrics
from twoshift.server_services import no_services, service_metrics
from twoshift.streams.metrics import stream_metrics
from twoshift.wiring.scalers import scaling_metrics

__all__ = ["Metric", "metrics", "render_metrics"]

_INTRO = """# Metrics

`make docs` generates this page from the program; a test checks that the page is up to date.

`GET /metrics` of a server returns these metrics in Prometheus' text format. If the server has keys, the request needs
a key with the scope `admin`. A histogram has the series `_bucket`, `_sum` and `_count`. The label `lane` is `online`
for live requests, `micro` for streams, and `batch` for jobs and batches. The label `beside` shows whether the device
was also running batch rows.
"""
_OF_STREAM = (
    "A server exports these metrics of its streams. `twoshift stream --metrics-port 9100` exports them without the\n"
    "labels `stream` and `model`, at `/metrics` of that port."
)
_OF_VLLM = (
    "A server with a language model also exports these names, for dashboards and scalers that were made for vLLM."
)
_HEAD = "| metric | type | labels | meaning |\n|---|---|---|---|"


class Metric(NamedTuple):
    """One line of the page."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str


def metrics() -> dict[str, list[Metric]]:
    """Those of each section."""
    llm = [*_described(_collected([lambda: llm_families({}, {})], {}))]
    gauges = {name: (about, lambda: 0.0) for name, (about, _) in host_gauges(cast(Any, None), cast(Any, None)).items()}
    return {
        "A server": [*_described(_collected(_more(), gauges))],
        "Language models": [each for each in llm if ":" not in each.name],
        "Language models, as vLLM names them": [each for each in llm if ":" in each.name],
        "A stream": [*_described(_collected([lambda: stream_metrics({}, ("stream", "model"))], {}))],
    }


def render_metrics() -> str:
    """The whole page."""
    notes = {"A stream": f"{_OF_STREAM}\n\n", "Language models, as vLLM names them": f"{_OF_VLLM}\n\n"}
    sections = (
        f"## {title}\n\n{notes.get(title, '')}{_HEAD}\n" + "".join(f"{_row(each)}\n" for each in those)
        for title, those in metrics().items()
    )
    return "\n".join([_INTRO, *sections])


def _more() -> list[MoreMetrics]:
    """What `Server` adds, of a server without anything."""
    tables = PrecomputedTables(cast(Any, None), cast(Any, None))
    return [
        scaling_metrics({}, {}, lambda _: []),
        tenant_metrics({}, list),
        service_metrics(no_services("")),
        tables.metrics,
        rollout_metrics(NoJobs(""), Deployments()),
    ]


def _collected(more: list[MoreMetrics], gauges: dict[str, Any]) -> Iterator[Any]:
    own = {each.name for each in ServerMetrics({}, {}).collect()}
    found = ServerMetrics({}, gauges, more).collect()
    return found if gauges else (each for each in found if each.name not in own)


def _described(families: Iterable[Any]) -> Iterator[Metric]:
    for each in families:
        name = f"{each.name}_total" if each.type == "counter" else each.name
        yield Metric(name, each.type, tuple(getattr(each, "_labelnames", ())), each.documentation)


def _row(each: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in each.labels)
    return f"| `{each.name}` | {each.kind} | {labels} | {each.about} |"
