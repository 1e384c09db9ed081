"""`plan goal`: from what is wanted by when to devices and dollars."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, count, given_of, usd, with_settings
from twoshift.cli.plan.app import app
from twoshift.cli.plan.curves import CurveSource, chosen_curve
from twoshift.cli.plan.settings import GoalSettings
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.policy.plan.data_sheet import estimated_curve
from twoshift.policy.plan.goal import GoalAsk, GoalPlan, plan_goal
from twoshift.policy.plan.roofline import DEVICES
from twoshift.policy.plan.row import Curve
from twoshift.units import format_duration

__all__ = ["goal_command", "until"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WHEN = re.compile(rf"(?:(today|tomorrow|{'|'.join(_DAYS)})\w*\s+)?(\d{{1,2}}):(\d{{2}})", re.IGNORECASE)
_TOKENS = 128.0


@command(
    app,
    "goal",
    """
    twoshift plan goal --items 40M --by 'tomorrow 8:00' --live-rate 30 \\
        --p99-ms 80 --device L4 --price 0.80 --model minilm
    """,
)
@with_settings(GoalSettings)
def goal_command(
    items: Annotated[float, count("Number of rows to score.")],
    price: Annotated[float, usd("Price of one device in dollars per hour.")],
    *,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Find how many devices score rows by a deadline and serve live requests, in one shared fleet and in two fleets."""
    settings = GoalSettings(**given_of(GoalSettings, given))
    window_s = _window_s(settings.by, settings.window)
    source, is_measured = _curve(settings)
    ask = GoalAsk(
        items, window_s, settings.live_rate, settings.p99_ms / 1e3, price, settings.headroom, spares=settings.spares
    )
    made = plan_goal(ask, source.cost, source.row)
    rows = [
        [
            each.name,
            pretty(each.devices),
            pretty(each.spares),
            f"{each.busy:.0%}",
            "-" if each.finish_s is None else format_duration(each.finish_s),
            f"{each.usd:,.2f}",
        ]
        for each in (made.one, made.live, made.batch)
    ]
    columns = ["<fleet", "devices", "spares", "busy", "batch ends after", "usd"]
    words = _words(made, window_s, source, is_measured)
    data = {**plain(made), "window_s": window_s, "curve": source.name, "measured": is_measured, "words": words}
    show(as_json, data, table(columns, rows), words)


def _window_s(by: str | None, window: float | None) -> float:
    if (by is None) == (window is None):
        if by is not None:
            raise Inapplicable("by", by, "with --window: use only one of the two")
        raise InvalidInput("by", None, "--by or --window")
    return window if window is not None else until(by or "", datetime.datetime.now().astimezone())


def until(by: str, now: datetime.datetime) -> float:
    """Seconds from now to a time as people write it; the next one of that day and hour. Raises InvalidInput."""
    found = _WHEN.fullmatch(by.strip())
    try:
        then = _next(found, now) if found else datetime.datetime.fromisoformat(by.strip())
    except ValueError:
        raise InvalidInput("by", by, "a time: 8:00, 'tomorrow 8:00', 'fri 18:00' or 2027-01-31T08:00") from None
    left_s = ((then if then.tzinfo else then.replace(tzinfo=now.tzinfo)) - now).total_seconds()
    if left_s <= 0:
        raise InvalidInput("by", by, "a time in the future")
    return left_s


def _next(found: re.Match[str], now: datetime.datetime) -> datetime.datetime:
    day, hour, minute = (found[1] or "").lower(), int(found[2]), int(found[3])
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if day == "tomorrow":
        return then + datetime.timedelta(days=1)
    if day in _DAYS:
        then += datetime.timedelta(days=(_DAYS.index(day) - now.weekday()) % 7)
        return then if then > now else then + datetime.timedelta(days=7)
    return then if day == "today" or then > now else then + datetime.timedelta(days=1)


def _curve(settings: GoalSettings) -> tuple[CurveSource[Curve], bool]:
    """A curve, and whether it was measured."""
    model, device, profile = settings.model, settings.device, settings.profile
    overhead_ms, item_ms, row_tokens = settings.overhead_ms, settings.item_ms, settings.row_tokens
    if model is None:
        return chosen_curve(overhead_ms, item_ms, profile, row_tokens), profile is not None
    if profile is not None or overhead_ms is not None or item_ms is not None:
        accepted = "use either --model and --device, or --profile, or --overhead-ms and --item-ms"
        raise Inapplicable("model", model, f"with --profile, --overhead-ms or --item-ms: {accepted}")
    if device is None:
        raise InvalidInput(
            "device", None, f"the name of a device for {model}: {', '.join(each.name for each in DEVICES.values())}"
        )
    tokens = row_tokens or _TOKENS
    cost, row = estimated_curve(model, DEVICES[device.lower()], tokens)
    return CurveSource(cost, row, f"{model} on {device}, {tokens:g} tokens per row", device), False


def _why_more(made: GoalPlan) -> str:
    """What makes one fleet cost more than two."""
    if made.one.devices <= made.two_devices:
        return "all its devices are rented until the deadline, but the devices of a batch fleet only until the job ends"
    return "short calls lose more throughput than the idle time of live devices adds"


def _words(made: GoalPlan, window_s: float, source: CurveSource[Curve], is_measured: bool) -> str:
    kind = "measured" if is_measured else "ESTIMATED, not measured"
    lines = [
        f"Time until the deadline: {format_duration(window_s)}. Curve ({kind}): {source.name}. At the objective, a "
        f"device answers {pretty(made.live_per_device)} live requests/s. A device scores "
        f"{pretty(made.batch_per_device)} rows/s without live requests, and {pretty(made.beside_per_device)} rows/s in "
        "calls that are short enough to run beside live requests."
    ]
    saved = made.two_usd - made.one.usd
    if made.live.devices and made.batch.devices:
        word = "saves" if saved >= 0 else "costs"
        fleets = f"One fleet of {made.one.devices:,} instead of {made.two_devices:,} devices"
        lines.append(f"{fleets} {word} ${abs(saved):,.2f}{'' if saved >= 0 else f' more, because {_why_more(made)}'}.")
    if not made.one.spares and made.live.devices:
        lines.append("Without a spare, live requests miss their objective while a device is replaced.")
    lines.append(
        "This plan counts only the model's forward calls. A job also spends time on reading, preparing and writing "
        "rows: the report of a job shows its predicted and its actual time."
    )
    if not is_measured:
        lines.append(
            "Before you rent devices, run `twoshift profile MODEL` on one of them, and plan again with --profile."
        )
    return "\n".join(lines)
