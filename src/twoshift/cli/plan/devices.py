"""`plan memory`, `plan roofline`: what fits a device, and what holds a call up on it."""

from __future__ import annotations

from typing import Any

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, given_of, with_settings
from twoshift.cli.plan.app import app
from twoshift.cli.plan.settings import MemorySettings, RooflineSettings
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.policy.plan.memory import PRECISION_BYTES, KvShape, MemoryPlan, plan_memory
from twoshift.policy.plan.roofline import DEVICES, Device, Roofline, call_work, plan_roofline
from twoshift.units import format_bytes, format_duration

__all__ = ["kv_shape", "memory_command", "model_shape", "roofline_command"]


@command(
    app,
    "memory",
    """
    twoshift plan memory --params 7B --precision fp16 --layers 32 \\
        --kv-heads 32 --head-dim 128 --tokens 2048 --device-memory 80GB
    """,
)
@with_settings(MemorySettings)
def memory_command(*, as_json: JsonFlag = False, **given: Any) -> None:
    """Compute the size of the weights and the KV cache, and the largest batch that fits a device."""
    settings = MemorySettings(**given_of(MemorySettings, given))
    made, devices = _memory(settings), settings.devices
    on = "on the device" if devices == 1 else f"on {devices} devices"
    shown = [
        ["weights", format_bytes(made.weights_bytes)],
        ["KV cache per token", _bytes(made.kv_bytes_per_token)],
        [f"KV cache per sequence of {settings.tokens:,.0f} tokens", _bytes(made.kv_bytes_per_sequence)],
        [f"usable {on}", _bytes(made.usable_bytes)],
        ["left for the KV cache", _bytes(made.free_bytes)],
        ["largest batch", pretty(made.largest_batch)],
    ]
    words = _memory_words(made)
    show(as_json, {**plain(made), "devices": devices, "words": words}, table(["<what", "how much"], shown), words)


def _memory(settings: MemorySettings) -> MemoryPlan:
    params, layers, heads, head_dim = settings.params, settings.layers, settings.kv_heads, settings.head_dim
    if settings.model is not None:
        params, layers, heads, head_dim = model_shape(settings.model, params, layers, heads, head_dim)
    if params is None:
        raise InvalidInput("params", params, "the number of parameters, such as 7B, or --model with a language model")
    kv = kv_shape(layers, heads, head_dim, settings.kv_precision, settings.devices)
    memory = settings.device_memory
    if memory is None and settings.device is not None:
        memory = DEVICES[settings.device.lower()].memory_bytes
    all_memory = None if memory is None else settings.devices * memory
    weight_bytes = PRECISION_BYTES[settings.precision]
    return plan_memory(params, weight_bytes, kv, settings.tokens, all_memory, settings.utilisation)


def model_shape(model: str, *given: float | None) -> tuple[float, int, int, int]:
    """Parameters, layers, KV heads and head dimension of a language model's folder; raises InvalidInput."""
    from twoshift.runtime.llm import llm_folder

    if any(value is not None for value in given):
        raise Inapplicable(
            "model", model, "with --params, --layers, --kv-heads or --head-dim, because --model sets all four"
        )
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
        raise InvalidInput(
            missing[0], None, "a whole number; the size of the KV cache needs --layers, --kv-heads and --head-dim"
        )
    return KvShape(layers, max(kv_heads, devices), head_dim, PRECISION_BYTES[precision])


def _bytes(value: float | None) -> str:
    return "-" if value is None else format_bytes(value)


def _memory_words(made: MemoryPlan) -> str:
    match made.fits, made.largest_batch:
        case None, _:
            return "Add --device or --device-memory to see what fits."
        case False, _:
            return "The weights alone do not fit: use more --devices, a smaller --precision or a larger device."
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
@with_settings(RooflineSettings)
def roofline_command(*, as_json: JsonFlag = False, **given: Any) -> None:
    """Find whether a call is memory-bound or compute-bound on a device (roofline)."""
    settings = RooflineSettings(**given_of(RooflineSettings, given))
    precision, chosen = settings.precision, _device(settings)
    work, moved_bytes = _work(settings)
    at_precision = "bf16" if settings.device is None else precision  # a given --tflops is already at the precision
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
    columns = ["<device", "FLOP/byte", "ridge FLOP/byte", "<bound", "maximum TFLOP/s", "minimum time"]
    data = {"device": chosen.name, "precision": precision, "flops": work, "moved_bytes": moved_bytes}
    show(as_json, {**data, **plain(made), "words": words}, table(columns, [row]), words)


def _device(settings: RooflineSettings) -> Device:
    name, tflops, bandwidth = settings.device, settings.tflops, settings.bandwidth
    if name is not None and tflops is None and bandwidth is None:
        return DEVICES[name.lower()]
    if name is None and tflops is not None and bandwidth is not None:
        return Device("given", tflops, bandwidth)
    if name is not None:
        given = "bandwidth" if tflops is None else "tflops"
        accepted = "with --device: use either --device, or both --tflops and --bandwidth"
        raise Inapplicable(given, getattr(settings, given), accepted)
    missing = "device" if tflops is None and bandwidth is None else "tflops" if tflops is None else "bandwidth"
    raise InvalidInput(missing, None, "either --device NAME, or both --tflops and --bandwidth")


def _work(settings: RooflineSettings) -> tuple[float, float]:
    """Arithmetic of the call, and bytes that it moves."""
    params, flops, moved, kv_bytes = settings.params, settings.flops, settings.moved, settings.kv_bytes or 0.0
    if params is not None and flops is None and moved is None:
        return call_work(params, PRECISION_BYTES[settings.precision], settings.tokens, kv_bytes)
    if params is None and flops is not None and moved is not None:
        return flops, moved + kv_bytes
    if params is not None:
        given = "moved" if flops is None else "flops"
        raise Inapplicable(
            given, getattr(settings, given), "with --params: use either --params, or both --flops and --moved"
        )
    missing = "params" if flops is None and moved is None else "flops" if flops is None else "moved"
    raise InvalidInput(missing, None, "either --params (and --tokens), or both --flops and --moved")


def _roofline_words(made: Roofline, device: Device) -> str:
    if made.bound == "compute":
        return "Compute-bound: more rows per call make the call longer, but not cheaper per item."
    if made.ridge < 1.25 * made.intensity:
        return "Memory-bound, but close to compute-bound: adding rows gains little."
    return (
        f"Memory-bound: during the memory transfer, {device.name} could do {made.ridge / made.intensity:.3g} times the "
        "arithmetic. Adding rows up to that point is almost free."
    )
