"""What `plan memory`, `plan roofline`, `plan goal`, `plan fleet` and `plan replicas` are asked, in their order.

What a command cannot do without is a parameter of its own.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from twoshift.cli.plan.curves import CallItemMs, CallOverheadMs, StoredProfile
from twoshift.declare import setting
from twoshift.policy.plan.memory import PRECISION_BYTES
from twoshift.policy.plan.roofline import DEVICES
from twoshift.values import choice, count, duration, millis, share, size, whole

__all__ = ["PRECISIONS", "FleetSettings", "GoalSettings", "KnownDevice", "MemorySettings", "ReplicasSettings",
           "RooflineSettings"]  # fmt: skip

PRECISIONS = tuple(PRECISION_BYTES)
_PRECISION = choice(PRECISIONS)

_DEVICE = choice(tuple(d.name for d in DEVICES.values()))
KnownDevice = Annotated[
    str | None, setting("Name of a device; its memory size and speed are read from its data sheet.", _DEVICE)
]


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model's weights, its KV cache, and a device."""

    params: Annotated[
        float | None,
        setting("Number of parameters of the model; for a mixture of experts, count all experts.", count()),
    ] = None
    model: Annotated[
        str | None,
        setting("Language model that sets --params, --layers, --kv-heads and --head-dim: smollm or a model folder."),
    ] = None
    precision: Annotated[str, setting("Precision of the weights.", _PRECISION)] = "fp16"
    layers: Annotated[
        int | None,
        setting(
            "Number of layers; needed with --kv-heads and --head-dim to compute the size of the KV cache.", whole()
        ),
    ] = None
    kv_heads: Annotated[int | None, setting("Number of key-value heads.", whole())] = None
    head_dim: Annotated[int | None, setting("Dimension of one attention head.", whole())] = None
    tokens: Annotated[float, setting("Tokens per sequence: prompt plus answer.", count(least=1))] = 2048
    kv_precision: Annotated[str, setting("Precision of the KV cache.", _PRECISION)] = "fp16"
    device: Annotated[
        str | None, setting("Name of a device; its memory size is read from its data sheet.", _DEVICE)
    ] = None
    device_memory: Annotated[float | None, setting("Memory size of the device.", size())] = None
    devices: Annotated[int, setting("Number of devices that share the model (tensor parallelism).", whole(most=64))] = 1
    utilisation: Annotated[float, setting("Share of the device memory that may be used.", share(zero=False))] = 0.9


class RooflineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A device, and the work of one call on it."""

    device: Annotated[
        str | None,
        setting("Name of a device; its peak TFLOP/s and memory bandwidth are read from its data sheet.", _DEVICE),
    ] = None
    tflops: Annotated[
        float | None, setting("Instead of --device: peak TFLOP/s of the device at --precision.", count())
    ] = None
    bandwidth: Annotated[float | None, setting("Instead of --device: memory bandwidth, such as 3.35TB/s.", size())] = (
        None
    )
    params: Annotated[float | None, setting("Number of parameters that each token uses.", count())] = None
    tokens: Annotated[
        float, setting("Tokens per call: one per row for decoding; rows x length for all other calls.", count(least=1))
    ] = 1
    kv_bytes: Annotated[float | None, setting("Bytes of KV cache that the call reads.", size())] = None
    flops: Annotated[float | None, setting("Instead of --params: FLOPs of the call.", count())] = None
    moved: Annotated[float | None, setting("Instead of --params: bytes that the call reads and writes.", size())] = None
    precision: Annotated[str, setting("Precision of weights and arithmetic.", _PRECISION)] = "bf16"


class GoalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """By when rows must be scored, beside which live requests, and on what."""

    by: Annotated[
        str | None, setting("Deadline for the rows: 8:00, 'tomorrow 8:00', 'fri 18:00' or 2027-01-31T08:00.")
    ] = None
    window: Annotated[float | None, setting("Time until the deadline, instead of --by.", duration())] = None
    live_rate: Annotated[
        float, setting("Live requests per second on the same devices, one row each.", count(zero=True))
    ] = 0.0
    p99_ms: Annotated[float, setting("Objective for the p99 latency of live requests, in milliseconds.", millis())] = (
        100.0
    )
    model: Annotated[
        str | None,
        setting("With --device: encoder whose call times are estimated, such as minilm or bge-base."),
    ] = None
    device: Annotated[
        str | None, setting("With --model: name of a device; its speed is read from its data sheet.", _DEVICE)
    ] = None
    profile: StoredProfile = None
    overhead_ms: CallOverheadMs = None
    item_ms: CallItemMs = None
    row_tokens: Annotated[
        float | None,
        setting(
            "With --model or --profile: tokens per row.",
            count(least=1),
            shown="128 with --model; the value in the profile with --profile",
        ),
    ] = None
    headroom: Annotated[
        float,
        setting(
            "Share of each device that is kept free of normal live load, as a reserve for load peaks. Batch rows may "
            "use this reserve.",
            share(one=False),
        ),
    ] = 0.3
    spares: Annotated[
        int,
        setting(
            "Number of spare devices: live requests still meet the objective if this many devices fail.",
            whole(least=0, most=1000),
        ),
    ] = 1


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the workers of a job."""

    spot_discount: Annotated[
        float, setting("Spot discount, as a share of the price, such as 60%.", share(one=False))
    ] = 0.0
    preemptions_per_hour: Annotated[
        float, setting("Average number of preemptions of one worker per hour.", count(zero=True))
    ] = 0.0
    shard_seconds: Annotated[
        float,
        setting("Processing time of one shard: a preemption loses at most this much work.", duration(), shown="60s"),
    ] = 60.0
    restart: Annotated[float, setting("Time until a lost worker is replaced.", duration(zero=True), shown="60s")] = 60.0
    straggler_margin: Annotated[
        float,
        setting("Allowance for slow shards at the end of a job, as a share of its work.", share(most=10.0)),
    ] = 0.1


class ReplicasSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a language model's replicas, and the rate of one."""

    tokens_per_s: Annotated[
        float | None,
        setting(
            "Number of output tokens that one replica generates per second at the TPOT objective.",
            count(),
            "--tokens-per-s",
            "--tokens-per-second",
        ),
    ] = None
    profile: StoredProfile = None
    concurrency: Annotated[float | None, setting("Average number of concurrent requests.", count())] = None
    rate: Annotated[float | None, setting("Average number of requests per second.", count())] = None
    peak_to_average: Annotated[float, setting("Ratio of peak load to average load.", count(least=1))] = 1.0
