"""Rollouts: the ladder, how the evidence grew, and what may be done."""

from __future__ import annotations

import urllib.parse
from typing import Any

from twoshift import report
from twoshift.report import Axis, Figure, Mark, Series
from twoshift.serve.http.messages import Reply
from twoshift.serve.keys import Access
from twoshift.ui.visit import Asked, Visit, api_path, redirect

__all__ = ["move_rollout", "rollout", "rollouts"]

_LEAST = 1e-3  # evidence that is as good as none
_OVER = ("promoted", "rolled_back")


async def rollouts(visit: Visit) -> Reply:
    """The newest first, below what answers now."""
    deployed, found = await visit.get("deployments"), await visit.get("rollouts", limit=50)
    return visit.page("rollouts.html", deployments=deployed["data"], rollouts=found["data"])


async def rollout(visit: Visit, refused: Asked | None = None) -> Reply:
    """One, with every decision."""
    found = await visit.get("rollouts", visit.matched["rollout"])
    is_over = found["stage"] in _OVER
    moves = () if is_over or not visit.session.may(Access.DEPLOY) else _moves(found)
    status, problem = (200, "") if refused is None else (refused.status, str(refused))
    about = {"rollout": found, "steps": _steps(found), "moves": moves, "charts": _charts(found), "is_over": is_over}
    return visit.page("rollout.html", status, problem=problem, **about)


async def move_rollout(visit: Visit) -> Reply:
    """Promote, roll back, pause, resume."""
    name, reason = visit.matched["rollout"], visit.form.get("reason", "").strip()
    try:
        await visit.ask("POST", api_path("rollouts", name, visit.matched["what"]), {"reason": reason})
    except Asked as refused:
        return await rollout(visit, refused)
    return redirect(f"/console/rollouts/{urllib.parse.quote(name, safe='')}")


def _moves(found: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    pause = ("resume", "Resume") if found["paused"] else ("pause", "Pause")
    return ("promote", "Promote"), ("rollback", "Roll back"), pause


def _steps(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Each step of the ladder, and whether it is past, now or ahead."""
    settings, stage = found["settings"], found["stage"]
    shares = [float(each) for each in settings.get("ladder") or ()]
    names = ["load", *(["shadow"] if settings.get("shadow") else []), *(f"{100 * each:g} %" for each in shares)]
    if stage == "promoted":
        return [(name, "past") for name in [*names, "promoted"]]
    at = {"loading": 0, "shadow": 1}.get(stage, len(names) - len(shares))
    if stage in ("ladder", "rolled_back") and shares:
        passed = [place for place, each in enumerate(shares) if each <= found["share"] + 1e-9]
        at = len(names) - len(shares) + (passed[-1] if passed else 0)
    now = "failed" if stage == "rolled_back" else "now"
    return [(name, "past" if place < at else now if place == at else "ahead") for place, name in enumerate(names)]


def _charts(found: dict[str, Any]) -> list[Figure]:
    points = found.get("evidence") or []
    if not points:
        return []
    began = points[0]["at"]
    at = [each["at"] - began for each in points]
    names = list(dict.fromkeys(name for each in points for name in each["evidence"]))
    lines = [Series(name, at, [max(_LEAST, each["evidence"].get(name, 0.0)) for each in points]) for name in names[:5]]
    alpha = float(found["settings"].get("alpha") or 0.01)
    time, evidence = Axis("since the start", kind="seconds"), Axis("evidence", scale="log", lo=_LEAST)
    return [
        report.line_chart(
            "Evidence that the candidate is worse",
            lines,
            time,
            evidence,
            marks=[Mark(1 / alpha, "rolled back")],
            note='The candidate is rolled back when the sum of the evidence reaches the line "rolled back".',
        ),
        report.line_chart(
            "Share of live requests",
            [Series("candidate", at, [each["share"] for each in points], step=True)],
            time,
            Axis("share", kind="share", lo=0.0, hi=1.0),
        ),
    ]
