"""What `/metrics` says of tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from twoshift.serve.exposition import MoreMetrics
from twoshift.serve.ledger import Counted
from twoshift.serve.tenants import Tenant

__all__ = ["tenant_metrics"]

_OTHERS = "other"  # jobs of tenants that no key has any more: the labels are as many as the configuration says


def tenant_metrics(tenants: Mapping[str, Tenant], counted: Callable[[], Iterable[Counted]]) -> MoreMetrics:
    """Requests, refusals and device time, by tenant."""

    def families() -> Iterator[Any]:
        totals = {name: each.total() for name, each in tenants.items()}
        requests = [(name, each.requests) for name, each in totals.items()]
        refusals = [(name, why, n) for name, each in totals.items() for why, n in sorted(each.refusals.items())]
        yield "counter", "tenant_requests", "Requests of a tenant.", ("tenant",), requests
        yield "counter", "tenant_refusals", "Refused requests of a tenant, by reason.", ("tenant", "reason"), refusals
        limits = [(name, most) for name, each in tenants.items() if (most := each.settings.device_seconds_per_day)]
        about = "Device seconds that a tenant may use each day (UTC)."
        yield "gauge", "tenant_quota_seconds", about, ("tenant",), limits
        spent = [(name, tenants[name].spent_s) for name, _ in limits]
        about = "Device seconds that a tenant has used today (UTC), on all servers that share the database."
        yield "gauge", "tenant_spent_seconds", about, ("tenant",), spent
        device_s: dict[tuple[str, str], float] = {}
        for each in counted():
            key = (each.tenant if each.tenant in tenants else _OTHERS, each.lane)
            device_s[key] = device_s.get(key, 0.0) + each.device_s
        samples = [(*key, seconds) for key, seconds in sorted(device_s.items())]
        yield "counter", "tenant_device_seconds", "Device time used by a tenant.", ("tenant", "lane"), samples

    return families
