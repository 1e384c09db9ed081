"""The planner behind the page and the API: a curve for what is asked, and the policy's view of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from twoshift.policy.cost import CallCost
from twoshift.policy.plan.overview import Overview, plan_overview
from twoshift.policy.plan.row import Curve, RowSize
from twoshift.serve.measured_curves import MeasuredCurve, MeasuredCurves
from twoshift.serve.plan_settings import PlanSettings

__all__ = ["Plan", "make_plan", "plan_data"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked, of which curve, and what follows."""

    settings: PlanSettings
    about: str  # where the curve comes from
    is_measured: bool
    curve: Curve
    row: RowSize  # padding included
    overview: Overview


def make_plan(settings: PlanSettings, measured: MeasuredCurves) -> Plan:
    """Raises InvalidInput."""
    if settings.profile is not None:
        found, is_measured = measured.get(settings.profile), True
        # A profile knows how long its rows were; the page says how long they are
        scaled = found.row if found.row.tokens <= 1 else found.row.scaled_to(settings.row_tokens)
        found = MeasuredCurve(found.cost, scaled, found.about)
    else:
        found, is_measured = _told(settings), False
    by_data_sheet = settings.profile is None and settings.overhead_ms is None
    on = settings.hardware if by_data_sheet else None  # what was measured, nobody knows the device of
    overview = plan_overview(settings.ask, found.cost, found.row, on)
    padded = found.row.scaled_to(found.row.tokens / (1 - settings.padding))
    return Plan(settings, found.about, is_measured, found.cost, padded, overview)


def _told(settings: PlanSettings) -> MeasuredCurve:
    if settings.overhead_ms is not None and settings.item_ms is not None:
        about = f"{settings.overhead_ms:g} ms per call and {settings.item_ms:g} ms per row"
        return MeasuredCurve(CallCost.line(settings.overhead_ms / 1e3, settings.item_ms / 1e3), RowSize(), about)
    about = f"the data sheet of {settings.device} (an estimate, not a measurement)"
    return MeasuredCurve(settings.data_sheet, RowSize.uniform(settings.row_tokens), about)


def plan_data(plan: Plan) -> dict[str, Any]:
    """For JSON; what is not finite becomes null there."""
    return {
        "object": "plan",
        "asked": msgspec.to_builtins(plan.settings),
        "curve": plan.about,
        "measured": plan.is_measured,
        **asdict(plan.overview),
    }
