"""What several processes have counted is shown as one."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_service import doubling_service

from twoshift.fleet.scaling import scaler_for
from twoshift.policy.autoscale import AutoscalePolicy, ReplicaSettings, WorkerSettings
from twoshift.serve.counts import CountsOfProcesses, MetricCounts, TenantCounts
from twoshift.serve.exposition import ServerMetrics
from twoshift.serve.metrics import SECONDS, ModelMetrics
from twoshift.serve.oip.about import statistics_of
from twoshift.serve.stages import STAGES, Stages
from twoshift.serve.tenant_metrics import tenant_metrics
from twoshift.serve.tenants import Tenant
from twoshift.types import ReplicaCounts

REPLIES = st.lists(
    st.tuples(
        st.sampled_from([200, 429, 503, 504]),
        st.sampled_from([0.0002, 0.003, 0.04, 20.0]),
        st.sampled_from([None, "overloaded", "late"]),
    ),
    max_size=20,
)


class Fixed:
    """One replica, for good."""

    def replicas(self) -> ReplicaCounts:
        return ReplicaCounts(1, 0)

    def scale_to(self, replicas: int) -> None:
        pass


def observe(metrics: ModelMetrics, replies: list[tuple[int, float, str | None]]) -> None:
    for status, seconds, refusal in replies:
        metrics.offered_rows += 2
        metrics.replied(status, seconds, refusal)
        if refusal is None:
            metrics.answered(Stages(queue=seconds / 2, forward=seconds / 2))
        else:
            metrics.refused_rows += 1


def counted(*replies: tuple[int, float, str | None]) -> ModelMetrics:
    made = ModelMetrics()
    observe(made, list(replies))
    return made


def same(first: MetricCounts, second: MetricCounts) -> bool:
    """But for the last digits of sums, whose order is another one."""
    sums = [[each.latency.total, *(stage.total for stage in each.stages.values())] for each in (first, second)]
    whole = [
        (each.requests, each.refusals, each.offered_rows, each.refused_rows, each.latency.counts,
         {name: stage.counts for name, stage in each.stages.items()}) for each in (first, second)
    ]  # fmt: skip
    return whole[0] == whole[1] and sums[0] == pytest.approx(sums[1])


@given(st.lists(REPLIES, min_size=1, max_size=4))
def test_the_total_is_what_one_process_would_have_counted(processes: list[list[tuple[int, float, str | None]]]) -> None:
    alone, here, others = ModelMetrics(), ModelMetrics(), CountsOfProcesses(MetricCounts())
    for number, replies in enumerate(processes):
        observe(alone, replies)
        metrics = ModelMetrics() if number else here
        observe(metrics, replies)
        if number:
            others.heard(number, metrics.counts())
    here.elsewhere = others.total()
    assert same(here.total(), alone.counts())
    assert here.total_rows() == (alone.offered_rows, alone.refused_rows)


def test_counts_of_a_process_that_has_ended_stay_and_the_next_one_adds_to_them() -> None:
    found = CountsOfProcesses(TenantCounts())
    found.heard(1, TenantCounts(3, {"late": 1}))
    found.heard(1, TenantCounts(5, {"late": 2}))
    found.heard(2, TenantCounts(10))
    assert found.total() == TenantCounts(15, {"late": 2})
    found.ended(1)
    assert found.total() == TenantCounts(15, {"late": 2})
    found.ended(1)  # nothing is counted twice
    found.heard(1, TenantCounts(1, {"overloaded": 1}))
    assert found.total() == TenantCounts(16, {"late": 2, "overloaded": 1})


@pytest.mark.parametrize("pack", [lambda it: pickle.loads(pickle.dumps(it)), None])  # noqa: S301 - our own
def test_counts_can_be_sent(pack: Any) -> None:
    counts = counted((200, 0.04, None), (503, 0.001, "overloaded")).counts()
    send = pack or (lambda it: msgspec.msgpack.decode(msgspec.msgpack.encode(it), type=MetricCounts))
    assert send(counts) == counts


def test_counts_are_of_one_moment() -> None:
    metrics, tenant = counted((503, 0.001, "overloaded")), Tenant("red")
    tenant.replied("late")
    before, of_tenant = metrics.counts(), tenant.counts()
    observe(metrics, [(503, 0.001, "overloaded")] * 600)
    tenant.replied("late")
    assert (before.requests, before.refusals, sum(before.latency.counts)) == ({503: 1}, {"overloaded": 1}, 1)
    assert of_tenant == TenantCounts(1, {"late": 1})


def test_latencies_of_other_processes_are_among_the_recent_ones_in_their_order() -> None:
    first, second, here = (counted((200, 0.5, None)) for _ in range(3))
    observe(first, [(504, 2.0, "late"), (503, 0.1, "overloaded")])
    own = here.recent()
    here.heard_recent(second.take_recent())
    here.heard_recent(first.take_recent())
    assert len(here.recent()) == 4  # refusals are none of them
    assert here.recent() == sorted([*first.recent(), *second.recent(), *own])
    assert first.take_recent() == []
    observe(first, [(200, 0.25, None)])
    assert [seconds for _, seconds in first.take_recent()] == [0.25]


def test_latencies_that_nobody_takes_are_bounded() -> None:
    metrics = ModelMetrics()
    observe(metrics, [(200, float(number), None) for number in range(5000)])
    taken = metrics.take_recent()
    assert [seconds for _, seconds in taken] == [float(number) for number in range(5000 - len(taken), 5000)]
    assert len(taken) == 4096
    for _ in range(5):
        metrics.heard_recent(taken)
    assert len(metrics.recent()) == 5 * 4096


def test_the_page_for_prometheus_has_the_sum_over_processes() -> None:
    pytest.importorskip("prometheus_client")
    other = counted((200, 0.04, None), (503, 0.001, "overloaded"), (429, 0.001, "over_limit"))
    with doubling_service() as (service, _):
        metrics = service.models["m"].metrics
        observe(metrics, [(200, 0.04, None), (200, 20.0, None)])
        metrics.elsewhere = other.counts()
        page = ServerMetrics(service.models, {}).text()[0].decode()
    shown = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    lane = 'lane="online",model="m"'
    assert shown[f'twoshift_requests_total{{{lane},status="200"}}'] == "3.0"
    assert shown[f'twoshift_requests_total{{{lane},status="429"}}'] == "1.0"
    assert shown[f'twoshift_refusals_total{{{lane},reason="overloaded"}}'] == "1.0"
    assert shown[f"twoshift_offered_rows_total{{{lane}}}"] == "10.0"
    assert shown[f"twoshift_refused_rows_total{{{lane}}}"] == "2.0"
    assert shown[f"twoshift_request_seconds_count{{{lane}}}"] == "5.0"
    assert float(shown[f"twoshift_request_seconds_sum{{{lane}}}"]) == pytest.approx(20.082)
    assert shown['twoshift_request_seconds_bucket{lane="online",le="0.05",model="m"}'] == "4.0"
    assert shown[f'twoshift_stage_seconds_count{{{lane},stage="queue"}}'] == "3.0"


def test_tritons_statistics_have_the_sum_over_processes() -> None:
    other = counted((200, 0.5, None), (503, 0.25, "overloaded"))
    with doubling_service() as (service, _):
        observe(service.models["m"].metrics, [(200, 0.5, None)])
        service.models["m"].metrics.elsewhere = other.counts()
        told = statistics_of([*service.models.values()])["model_stats"][0]["inference_stats"]
    assert told["success"] == {"count": 2, "ns": 1_000_000_000}
    assert told["fail"] == {"count": 1, "ns": 250_000_000}
    assert told["queue"] == {"count": 2, "ns": 500_000_000}


def test_the_scaler_sees_rows_that_other_processes_were_offered() -> None:
    with doubling_service() as (service, _):
        model = service.models["m"]
        scaler = scaler_for(model, Fixed(), AutoscalePolicy(ReplicaSettings(), WorkerSettings(quota=0), 8), list, None)
        scaler._observe(100.0)
        model.metrics.offered_rows += 10
        model.metrics.elsewhere = MetricCounts(offered_rows=40, refused_rows=20)
        seen = scaler._observe(110.0).replicas
    assert (seen.live_rows_per_s, seen.refused_rows_per_s) == (5.0, 2.0)


def test_metrics_of_tenants_have_the_sum_over_processes() -> None:
    red = Tenant("red")
    red.replied(None)
    red.replied("late")
    red.elsewhere = TenantCounts(5, {"late": 1, "overloaded": 2})
    found: Any = {name: samples for _, name, _, _, samples in tenant_metrics({"red": red}, list)()}
    assert found["tenant_requests"] == [("red", 7)]
    assert found["tenant_refusals"] == [("red", "late", 2), ("red", "overloaded", 2)]


def test_every_histogram_has_all_its_buckets_before_anything_is_counted() -> None:
    total = ModelMetrics().total()
    assert Counter(map(len, (each.counts for each in total.stages.values()))) == {len(SECONDS) + 1: len(STAGES)}
    assert len(total.latency.counts) == len(SECONDS) + 1
