"""A server as it describes itself: what `GET /v1/derived/{model}` says, as a simulation takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.sim.host import HostCosts

__all__ = ["ServedCurves", "read_served"]

_EXPECTED = "the reply of a Twoshift server to GET /v1/derived/{model}"


@dataclass(frozen=True, slots=True)
class ServedCurves:
    """The curves as learned, and the limits that the engine runs with."""

    whole: CallCost  # of a call that has the device to itself
    lane: CallCost  # of a call beside others
    limits: LaneLimits
    row_tokens: int  # of a typical row
    longest: int | None = None  # tokens of a row: longer ones are cut
    host: HostCosts | None = None


def read_served(data: object, name: str = "server") -> ServedCurves:
    """Raises InvalidInput where it is something else."""
    reply = _mapping(data, name)
    curves = _mapping(reply.get("curves"), f"{name}: curves")
    limits = _mapping(curves.get("limits"), f"{name}: curves.limits")
    known = {each.name for each in fields(LaneLimits)}
    try:
        return ServedCurves(
            CallCost.from_dict(_mapping(curves.get("whole"), f"{name}: curves.whole")),
            CallCost.from_dict(_mapping(curves.get("lane"), f"{name}: curves.lane")),
            LaneLimits(**{key: value for key, value in limits.items() if key in known}),
            max(1, round(float(reply.get("row_tokens", 1)))),
            int(curves["max_row_tokens"]) if "max_row_tokens" in curves else None,
            HostCosts(**_mapping(curves["host"], f"{name}: curves.host")) if "host" in curves else None,
        )
    except (TypeError, ValueError) as error:
        raise InvalidInput(name, str(error), _EXPECTED) from None


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and value:
        return cast("Mapping[str, Any]", value)
    raise InvalidInput(name, cast("object", value), _EXPECTED)
