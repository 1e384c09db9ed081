"""Estimated cost of calls from a device's data sheet, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.errors import InvalidInput
from twoshift.policy.plan.memory import PRECISION_BYTES
from twoshift.policy.plan.roofline import Device, call_work
from twoshift.policy.plan.row import RowSize
from twoshift.types import CallSize

__all__ = ["ENCODERS", "DataSheetCurve", "estimated_curve"]

# Parameters of the layers, without embeddings, which are looked up and not multiplied
ENCODERS = {
    "minilm": 10.6e6,
    "bge-small": 21.3e6,
    "e5-small": 21.3e6,
    "bge-base": 85.1e6,
    "e5-base": 85.1e6,
    "mpnet-base": 85.1e6,
    "bge-large": 302e6,
    "bge-m3": 302e6,
    "e5-large": 302e6,
}
_REACHED = 0.35  # of a device's peak, by an encoder in packed calls
_CALL_S = 0.003  # what a call takes besides


@dataclass(frozen=True, slots=True)
class DataSheetCurve:
    """A Curve: the time for arithmetic or for reading the weights, whichever is longer, plus a fixed time per call."""

    device: Device
    params: float
    precision: str = "bf16"

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Estimated seconds; the same for every quantile, because nothing was measured."""
        flops, moved_bytes = call_work(self.params, PRECISION_BYTES[self.precision], size.tokens)
        compute_s = flops / (_REACHED * self.device.flops_per_s(self.precision))
        return _CALL_S + max(compute_s, moved_bytes / self.device.bandwidth_bytes_per_s)


def estimated_curve(model: str, device: Device, tokens: float) -> tuple[DataSheetCurve, RowSize]:
    """Estimated cost curve of an encoder, from the device's data sheet; raises InvalidInput for an unknown device."""
    parameters = ENCODERS.get(model.lower())
    if parameters is None:
        accepted = f"one of {', '.join(ENCODERS)}; for another model, give its profile: --profile NAME"
        raise InvalidInput("model", model, accepted)
    return DataSheetCurve(device, parameters), RowSize.uniform(tokens)
