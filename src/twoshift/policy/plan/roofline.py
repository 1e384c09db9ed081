"""Whether a call is limited by memory bandwidth or by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twoshift.errors import InvalidInput

__all__ = ["DEVICES", "Device", "Roofline", "call_work", "plan_roofline"]


@dataclass(frozen=True, slots=True)
class Device:
    """Peak figures of a device, from its public data sheet, without sparsity."""

    name: str
    tflops: float  # bf16, or fp16 where there is no bf16
    bandwidth_bytes_per_s: float
    memory_bytes: float | None = None
    tflops_int8: float | None = None  # None: no gain over 16 bit
    tflops_fp8: float | None = None  # None: weights are widened to 16 bit before the multiply
    tflops_fp32: float | None = None  # true fp32, not TF32; None: half of 16 bit

    def __post_init__(self) -> None:
        for name in ("tflops", "bandwidth_bytes_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, value, "a finite number above 0")

    def flops_per_s(self, precision: str = "bf16") -> float:
        """Peak arithmetic at this precision; a precision without its own units runs in 16 bit."""
        match precision:
            case "int8":
                tflops = self.tflops_int8 or self.tflops
            case "fp8":
                tflops = self.tflops_fp8 or self.tflops
            case "fp32":
                tflops = self.tflops_fp32 or self.tflops / 2
            case _:
                tflops = self.tflops
        return 1e12 * tflops

    def ridge(self, precision: str = "bf16") -> float:
        """FLOPs per byte at which memory and arithmetic take equally long."""
        return self.flops_per_s(precision) / self.bandwidth_bytes_per_s


_GB, _TB = 1e9, 1e12

DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        d.name.lower(): d
        for d in (
            Device("A10", 125, 600 * _GB, 24 * _GB, 250, tflops_fp32=31.2),
            Device("A100-40GB", 312, 1.555 * _TB, 40 * _GB, 624, tflops_fp32=19.5),
            Device("A100-80GB", 312, 2.039 * _TB, 80 * _GB, 624, tflops_fp32=19.5),
            Device("B200", 2250, 8.0 * _TB, 180 * _GB, 4500, 4500, tflops_fp32=80),
            Device("H100", 989, 3.35 * _TB, 80 * _GB, 1979, 1979, tflops_fp32=67),
            Device("H100-PCIe", 756, 2.0 * _TB, 80 * _GB, 1513, 1513, tflops_fp32=51),
            Device("H200", 989, 4.8 * _TB, 141 * _GB, 1979, 1979, tflops_fp32=67),
            Device("L4", 121, 300 * _GB, 24 * _GB, 242, 242, tflops_fp32=30.3),
            Device("L40S", 362, 864 * _GB, 48 * _GB, 733, 733, tflops_fp32=91.6),
            Device("MI300X", 1307, 5.3 * _TB, 192 * _GB, 2615, 2615, tflops_fp32=163.4),
            Device("T4", 65, 320 * _GB, 16 * _GB, 130, tflops_fp32=8.1),
            Device("TPU-v5e", 197, 819 * _GB, 16 * _GB, 393),
            Device("V100", 125, 900 * _GB, 32 * _GB, tflops_fp32=15.7),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Roofline:
    """A call compared with the peak figures of its device."""

    intensity: float  # FLOP a byte
    ridge: float
    bound: str  # memory or compute
    seconds: float  # no call of this work is quicker on this device
    attainable_tflops: float
    peak_share: float  # of the device's arithmetic that the call can use


def call_work(params: float, weight_bytes: float, tokens: float, kv_read_bytes: float = 0.0) -> tuple[float, float]:
    """(FLOPs, bytes moved) of one call: 2 FLOPs a parameter and token; the weights are read once a call."""
    return 2 * params * tokens, params * weight_bytes + kv_read_bytes


def plan_roofline(device: Device, flops: float, moved_bytes: float, precision: str = "bf16") -> Roofline:
    """Below the ridge, memory bandwidth is the limit; above it, arithmetic."""
    for name, value in (("flops", flops), ("moved_bytes", moved_bytes)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(name, value, "a finite number above 0")
    peak = device.flops_per_s(precision)
    ridge = device.ridge(precision)
    intensity = flops / moved_bytes
    seconds = max(flops / peak, moved_bytes / device.bandwidth_bytes_per_s)
    bound = "compute" if intensity >= ridge else "memory"
    return Roofline(intensity, ridge, bound, seconds, flops / seconds / 1e12, flops / seconds / peak)
