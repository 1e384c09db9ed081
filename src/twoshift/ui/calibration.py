"""What was predicted against what came, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twoshift import report
from twoshift.serve.http.messages import Reply
from twoshift.ui.visit import Visit

__all__ = ["CALIBRATION", "calibration_page"]

CALIBRATION = "/console/predictions"
_ASKED, _LISTED = 1000, 100
_AXES: Mapping[str, tuple[str, report.Axis, report.Axis]] = {
    "s": (
        "Times",
        report.Axis("predicted", kind="seconds", scale="log"),
        report.Axis("measured", kind="seconds", scale="log"),
    ),
    "share": ("Shares", report.Axis("predicted", kind="share"), report.Axis("measured", kind="share")),
}


async def calibration_page(visit: Visit) -> Reply:
    """As the API has them for this session's caller."""
    found = await visit.get("predictions", limit=_ASKED)
    rows, summary = found["data"], found["calibration"]
    return visit.page("calibration.html", figures=[*_figures(rows)], calibration=summary, newest=rows[:_LISTED])


def _figures(rows: Sequence[Mapping[str, Any]]) -> Iterator[report.Figure]:
    for unit, (title, x, y) in _AXES.items():
        of_it = [each for each in rows if each["unit"] == unit]
        if not of_it:
            continue
        names = dict.fromkeys(each["what"] for each in of_it)
        series = [report.Dots(name, [_point(each) for each in of_it if each["what"] == name]) for name in names]
        yield report.scatter_chart(f"{title}, predicted and measured", series, x, y)


def _point(each: Mapping[str, Any]) -> tuple[float, float, str]:
    return each["predicted"], each["measured"], f"{each['model']} {each['subject']}".strip()
