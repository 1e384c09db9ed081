"""What a job would take on a deployment, before it is submitted."""

from __future__ import annotations

import msgspec

from twoshift.serve.derived import Derived
from twoshift.serve.llm_derived import LlmDerived

__all__ = ["JobEstimate", "estimated"]

_LEAST_IDLE = 0.05  # share of the time that a job is thought to have at least


class JobEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Estimate of a job; assumes that its rows are like the rows of recent live requests."""

    rows_per_s: float  # in the time that live requests leave
    device_s: float
    seconds: float  # until it ends
    usd: float | None  # None: the model has no price
    idle_share: float  # of the time of the devices, as it was since the start
    replicas: int


def estimated(
    derived: Derived | LlmDerived, rows: int, replicas: int, live_share: float, usd_per_hour: float | None
) -> JobEstimate | None:
    """None where no call of the job fits beside live requests."""
    row_s = _row_s(derived)
    if row_s is None:
        return None
    share = derived.background_share if isinstance(derived, Derived) else 1.0
    idle, devices = max(_LEAST_IDLE, 1.0 - live_share), max(1, replicas)
    device_s, rows_per_s = rows * row_s, devices * idle * share / row_s
    return JobEstimate(
        rows_per_s=rows_per_s,
        device_s=device_s,
        seconds=rows / rows_per_s,
        usd=None if usd_per_hour is None else device_s * usd_per_hour / 3600,
        idle_share=idle,
        replicas=devices,
    )


def _row_s(derived: Derived | LlmDerived) -> float | None:
    """Of a device, in the calls that jobs have."""
    if isinstance(derived, LlmDerived):
        per_s = derived.capacity_rows_per_s
        return 1.0 / per_s if per_s > 0 else None
    if not derived.background_share or not derived.largest_background_rows:
        return None
    return derived.background_call_s / derived.largest_background_rows
