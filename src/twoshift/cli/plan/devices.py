"""`plan memory`, `plan roofline`: what fits a device, and what holds a call up on it."""

from __future__ import annotations

from typing import Annotated

from twoshift import values
from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, choice, count, option_of, share, size, text, whole
from twoshift.cli.plan.app import app
from twoshift.declare import setting
from twoshift.errors import InvalidInput
from twoshift.policy.plan.memory import PRECISION_BYTES, KvShape, MemoryPlan, plan_memory
from twoshift.policy.plan.roofline import DEVICES, Device, Roofline, call_work, plan_roofline
from twoshift.units import format_bytes, format_duration

__all__ = ["PRECISIONS", "DeviceName", "KnownDevice", "kv_shape", "memory_command", "model_shape", "roofline_command"]

PRECISIONS = tuple(PRECISION_BYTES)
_DEVICE_NAMES = tuple(d.name for d in DEVICES.values())

KnownDevice = Annotated[
    str | None, setting("Device name: takes memory and speed from its data sheet.", values.choice(_DEVICE_NAMES))
]
DeviceName = Annotated[str | None, option_of(KnownDevice)]


@command(
    app,
    "memory",
    """
    twoshift plan memory --params 7B --precision fp16 --layers 32 \\
        --kv-heads 32 --head-dim 128 --tokens 2048 --device-memory 80GB
    """,
)
def memory_command(
    params: Annotated[
        float | None, count("Number of parameters of the model; for a mixture of experts, all of them.")
    ] = None,
    model: Annotated[str | None, text("Read the sizes from a language model: smollm or a model folder.")] = None,
    precision: Annotated[str, choice("Precision of the weights.", PRECISIONS)] = "fp16",
    layers: Annotated[
        int | None, whole("Number of layers; with --kv-heads and --head-dim, the KV cache size is computed.")
    ] = None,
    kv_heads: Annotated[int | None, whole("Number of key-value heads.")] = None,
    head_dim: Annotated[int | None, whole("Dimension of one attention head.")] = None,
    tokens: Annotated[float, count("Tokens per sequence: prompt plus answer.", least=1, shown="2048")] = 2048,
    kv_precision: Annotated[str, choice("Precision of the KV cache.", PRECISIONS)] = "fp16",
    device: DeviceName = None,
    device_memory: Annotated[float | None, size("Memory size of the device.")] = None,
    devices: Annotated[int, whole("Number of devices that share the model (tensor parallelism).", most=64)] = 1,
    utilisation: Annotated[float, share("Share of the device memory that may be used.", zero=False)] = 0.9,
    as_json: JsonFlag = False,
) -> None:
    """Compute the size of the weights and the KV cache, and the largest batch that fits a device."""
    if model is not None:
        params, layers, kv_heads, head_dim = model_shape(model, params, layers, kv_heads, head_dim)
    if params is None:
        raise InvalidInput("params", params, "a value, or --model with a language model")
    kv = kv_shape(layers, kv_heads, head_dim, kv_precision, devices)
    if device_memory is None and device is not None:
        device_memory = DEVICES[device.lower()].memory_bytes
    all_memory = None if device_memory is None else devices * device_memory
    made = plan_memory(params, PRECISION_BYTES[precision], kv, tokens, all_memory, utilisation)
    on = "on the device" if devices == 1 else f"on {devices} devices"
    shown = [
        ["weights", format_bytes(made.weights_bytes)],
        ["KV cache per token", _bytes(made.kv_bytes_per_token)],
        [f"KV cache per sequence of {tokens:,.0f}", _bytes(made.kv_bytes_per_sequence)],
        [f"usable {on}", _bytes(made.usable_bytes)],
        ["left for the KV cache", _bytes(made.free_bytes)],
        ["largest batch", pretty(made.largest_batch)],
    ]
    words = _memory_words(made)
    show(as_json, {**plain(made), "devices": devices, "words": words}, table(["<what", "how much"], shown), words)


def model_shape(model: str, *given: float | None) -> tuple[float, int, int, int]:
    """Parameters, layers, KV heads and head dimension of a language model's folder; raises InvalidInput."""
    from twoshift.runtime.llm import llm_folder

    if any(value is not None for value in given):
        raise InvalidInput("model", model, "either a model, or --params, --layers, --kv-heads and --head-dim")
    folder = llm_folder(model)
    return folder.params, folder.layers, folder.kv_heads, folder.head_dim


def kv_shape(
    layers: int | None, kv_heads: int | None, head_dim: int | None, precision: str, devices: int = 1
) -> KvShape | None:
    """None where nothing is said; each of several devices has one KV head at least, copies where there are fewer."""
    given = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        return None
    if layers is None or kv_heads is None or head_dim is None:
        raise InvalidInput(missing[0], None, "a value: the KV cache needs --layers, --kv-heads and --head-dim")
    return KvShape(layers, max(kv_heads, devices), head_dim, PRECISION_BYTES[precision])


def _bytes(value: float | None) -> str:
    return "-" if value is None else format_bytes(value)


def _memory_words(made: MemoryPlan) -> str:
    match made.fits, made.largest_batch:
        case None, _:
            return "Add --device or --device-memory to see what fits."
        case False, _:
            return "The weights alone do not fit: shard them, quantise them, or take a larger device."
        case True, None:
            return "The weights fit. Add --layers, --kv-heads and --head-dim to size the KV cache."
        case True, 0:
            return "The weights fit, but the KV cache of one sequence does not fit beside them."
        case _:
            return f"Up to {made.largest_batch:,} sequences fit at once ({made.largest_tokens:,} tokens of KV cache)."


@command(
    app,
    "roofline",
    """
    twoshift plan roofline --device H100 --params 7B --tokens 64
    """,
)
def roofline_command(
    device: DeviceName = None,
    tflops: Annotated[float | None, count("Instead of --device: peak TFLOP/s at this precision.")] = None,
    bandwidth: Annotated[float | None, size("Instead of --device: memory bandwidth, such as 3.35TB/s.")] = None,
    params: Annotated[float | None, count("Number of parameters that each token uses.")] = None,
    tokens: Annotated[
        float, count("Tokens per call: the number of rows when decoding, rows x length otherwise.", least=1, shown="1")
    ] = 1,
    kv_bytes: Annotated[float | None, size("Bytes of KV cache that the call reads.")] = None,
    flops: Annotated[float | None, count("Instead of --params: FLOPs of the call.")] = None,
    moved: Annotated[float | None, size("Instead of --params: bytes that the call reads and writes.")] = None,
    precision: Annotated[str, choice("Precision of weights and arithmetic.", PRECISIONS)] = "bf16",
    as_json: JsonFlag = False,
) -> None:
    """Find whether a call is memory-bound or compute-bound on a device (roofline)."""
    chosen = _device(device, tflops, bandwidth)
    weight_bytes = PRECISION_BYTES[precision]
    work, moved_bytes = _work(params, tokens, kv_bytes, flops, moved, weight_bytes)
    at_precision = "bf16" if device is None else precision  # a given --tflops is already at the precision
    made = plan_roofline(chosen, work, moved_bytes, at_precision)
    words = _roofline_words(made, chosen)
    row = [
        chosen.name,
        pretty(made.intensity),
        pretty(made.ridge),
        f"{made.bound}-bound",
        pretty(made.attainable_tflops),
        format_duration(made.seconds),
    ]
    columns = ["<device", "FLOP/byte", "ridge", "<bound", "TFLOP/s at most", "time at least"]
    data = {"device": chosen.name, "precision": precision, "flops": work, "moved_bytes": moved_bytes}
    show(as_json, {**data, **plain(made), "words": words}, table(columns, [row]), words)


def _device(name: str | None, tflops: float | None, bandwidth: float | None) -> Device:
    if name is not None and tflops is None and bandwidth is None:
        return DEVICES[name.lower()]
    if name is None and tflops is not None and bandwidth is not None:
        return Device("given", tflops, bandwidth)
    raise InvalidInput("device", name, "either --device NAME, or both --tflops and --bandwidth")


def _work(
    params: float | None,
    tokens: float,
    kv_bytes: float | None,
    flops: float | None,
    moved: float | None,
    weight_bytes: float,
) -> tuple[float, float]:
    if params is not None and flops is None and moved is None:
        return call_work(params, weight_bytes, tokens, kv_bytes or 0.0)
    if params is None and flops is not None and moved is not None:
        return flops, moved + (kv_bytes or 0.0)
    raise InvalidInput("params", params, "either --params (and --tokens), or both --flops and --moved")


def _roofline_words(made: Roofline, device: Device) -> str:
    if made.bound == "compute":
        return "Compute-bound: more rows per call make the call longer, but not cheaper per item."
    if made.ridge < 1.25 * made.intensity:
        return "Memory-bound, but close to compute-bound: adding rows gains little."
    return (
        f"Memory-bound: {device.name} could do {made.ridge / made.intensity:.3g} times the arithmetic in the time the "
        "memory transfer takes, so adding rows up to that point is almost free."
    )
