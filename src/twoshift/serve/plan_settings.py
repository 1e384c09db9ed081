"""What the planner's page and `/v1/plan` are asked: each value as people write it, with its bounds."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from twoshift.declare import Declared, declared, setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.policy.plan.data_sheet import DataSheetCurve
from twoshift.policy.plan.memory import PRECISION_BYTES, KvShape
from twoshift.policy.plan.overview import LARGEST_BATCH, Hardware, OverviewAsk
from twoshift.policy.plan.roofline import DEVICES
from twoshift.values import choice, count, millis, share, text, usd, whole

__all__ = ["PlanSettings", "plan_fields", "read_plan", "written"]

_LONGEST = 200  # characters of a value
_BELOW_ONE, _ABOVE_ZERO = share(one=False), share(zero=False)


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and a device, in the order of the form."""

    batch: Annotated[int, setting("Rows per call.", whole(most=LARGEST_BATCH))] = 16
    row_tokens: Annotated[float, setting("Tokens per row, without padding.", count(least=1, most=1e6))] = 128.0
    padding: Annotated[float, setting("Share of the computed tokens that is padding.", _BELOW_ONE)] = 0.2
    slo_ms: Annotated[float, setting("Latency objective of a live request, in milliseconds.", millis())] = 100.0
    share: Annotated[
        float,
        setting("Share of the latency objective that a live request may spend waiting for batch rows.", _ABOVE_ZERO),
    ] = 0.5
    price: Annotated[float, setting("Price of the device in dollars per hour.", usd())] = 3.0
    utilisation: Annotated[float, setting("Share of the paid time in which the device is busy.", _ABOVE_ZERO)] = 0.6
    spot_discount: Annotated[float, setting("Spot discount, as a share of the price.", _BELOW_ONE)] = 0.0
    device: Annotated[
        str, setting("Name of a device whose data sheet is used.", choice([d.name for d in DEVICES.values()]))
    ] = "H100"
    params: Annotated[float, setting("Number of parameters of the model, such as 7B.", count(least=1e5, most=1e13))] = (
        7e9
    )
    precision: Annotated[str, setting("Precision of weights and arithmetic.", choice([*PRECISION_BYTES]))] = "bf16"
    layers: Annotated[int | None, setting("Language model: number of layers.", whole(most=1000))] = None
    kv_heads: Annotated[int | None, setting("Language model: number of key-value heads.", whole(most=1000))] = None
    head_dim: Annotated[int | None, setting("Language model: dimension of one attention head.", whole(most=10_000))] = (
        None
    )
    tokens: Annotated[
        float, setting("Language model: tokens of one sequence in the KV cache.", count(least=1, most=1e8))
    ] = 2048.0
    profile: Annotated[
        str | None,
        setting("Name of a measured cost curve, used in place of the data sheet.", text("NAME"), shown="data sheet"),
    ] = None
    overhead_ms: Annotated[
        float | None,
        setting(
            "Part of a call's time that does not depend on its number of rows, in milliseconds. With item_ms, replaces "
            "the data sheet.",
            millis(zero=True),
        ),
    ] = None
    item_ms: Annotated[float | None, setting("Time that each row adds to a call, in milliseconds.", millis())] = None

    @property
    def ask(self) -> OverviewAsk:
        """As the policy takes it."""
        return OverviewAsk(
            self.batch, self.price, self.slo_ms / 1e3, self.utilisation, self.spot_discount, self.padding,
            self.row_tokens, self.share,
        )  # fmt: skip

    @property
    def hardware(self) -> Hardware:
        """The model on its device; raises InvalidInput where the KV cache is half described."""
        kv = {"layers": self.layers, "kv_heads": self.kv_heads, "head_dim": self.head_dim}
        missing = [name for name, value in kv.items() if value is None]
        shape = None
        if self.layers is not None and self.kv_heads is not None and self.head_dim is not None:
            shape = KvShape(self.layers, self.kv_heads, self.head_dim, PRECISION_BYTES["bf16"])
        elif len(missing) < len(kv):
            raise InvalidInput(missing[0], None, "a value: layers, kv_heads and head_dim must be given together")
        device = DEVICES[self.device.lower()]
        return Hardware(device, self.params, self.precision, shape, self.tokens)

    @property
    def data_sheet(self) -> DataSheetCurve:
        """What calls would cost, where nothing was measured."""
        return DataSheetCurve(DEVICES[self.device.lower()], self.params, self.precision)


def plan_fields() -> Mapping[str, Declared]:
    """The fields by name, in order."""
    return declared(PlanSettings)


def read_plan(given: Mapping[str, str]) -> PlanSettings:
    """Of a query string; an empty value is the default. Raises InvalidInput that names what to change."""
    fields, read = plan_fields(), dict[str, Any]()
    for name, raw in given.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1, 0.4)
            known = f"a known parameter, such as {near[0]}" if near else f"one of the parameters {', '.join(fields)}"
            raise InvalidInput(name[:_LONGEST], raw[:_LONGEST], known)
        if len(raw) > _LONGEST:
            raise InvalidInput(name, f"{raw[:20]}...", f"a value of at most {_LONGEST} characters")
        if raw.strip():
            value = fields[name].setting.value.parse(raw.strip(), name)
            read[name] = int(value) if fields[name].type is int else value
    if (read.get("overhead_ms") is None) != (read.get("item_ms") is None):
        missing = "item_ms" if read.get("item_ms") is None else "overhead_ms"
        raise InvalidInput(missing, None, "a value: overhead_ms and item_ms must be given together")
    if "profile" in read and "item_ms" in read:
        raise Inapplicable(
            "profile", read["profile"], "with overhead_ms and item_ms: use either a profile or these two values"
        )
    return PlanSettings(**read)


def written(value: Any) -> str:
    """A value of a form, so that it is read as the same again; numbers as short as they are exact."""
    if value is None:
        return ""
    if isinstance(value, float) and value >= 1e8:
        return f"{value / 1e9:.12g}B"  # parameters, as people say them
    return f"{value:.12g}" if isinstance(value, float) else str(value)
