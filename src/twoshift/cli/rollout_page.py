"""A rollout's record as a page: how the evidence grew, what share the candidate had, and each decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twoshift import report
from twoshift._version import __version__
from twoshift.policy.rollout_journal import read_decision
from twoshift.policy.rollout_values import Advance, Keep, Promote, RollBack, RolloutDecision, RolloutSettings
from twoshift.units import format_duration

__all__ = ["rollout_page", "rollout_sections"]

_LEAST_EVIDENCE = 1e-3  # less is as good as none, and would leave the rest no room
_SHOWN = 50
_NAMES = {Keep: "keep", Advance: "advance", Promote: "promote", RollBack: "roll back"}


@dataclass(slots=True)
class _Told:
    """What the entries say that is shown."""

    settings: RolloutSettings = field(default_factory=RolloutSettings)
    began_s: float | None = None
    decisions: list[tuple[float, RolloutDecision]] = field(default_factory=list[tuple[float, RolloutDecision]])


def rollout_page(entries: Iterable[list[Any]], title: str) -> str:
    """The record of one rollout, as `rollout_journal` has it, as one HTML document."""
    return report.page(title, "", rollout_sections(entries, ""), f"Made by twoshift {__version__}")


def rollout_sections(entries: Iterable[list[Any]], title: str) -> list[report.Section]:
    """The same as sections of a page with more on it."""
    told = _read(entries)
    if not told.decisions:
        return [report.Section(title, [report.text("There is no decision yet.")])]
    _, last = told.decisions[-1]
    return [
        report.Section(title, [report.figures_row(_cards(told, last)), _evidence(told), _shares(told)]),
        report.Section("", [_comparisons(last), _changes(told)]),
    ]


def _read(entries: Iterable[list[Any]]) -> _Told:
    told = _Told()
    for entry in entries:
        match entry:
            case ["decide", now_s, decision]:
                told.began_s = now_s if told.began_s is None else told.began_s
                told.decisions.append((now_s - told.began_s, read_decision(decision)))
            case ["twoshift-rollout", _, settings, state]:
                told.settings = RolloutSettings.from_dict(settings)
                told.began_s = state["since_s"] if told.began_s is None else told.began_s
            case _:
                pass
    return told


def _cards(told: _Told, last: RolloutDecision) -> list[report.Card]:
    ends_s = told.decisions[-1][0]
    result = {Keep: "in progress", Advance: "in progress", Promote: "promoted", RollBack: "rolled back"}[type(last)]
    state = "good" if isinstance(last, Promote) else "bad" if isinstance(last, RollBack) else "plain"
    total = sum(figure.evidence for figure in last.figures)
    needed = 1 / told.settings.alpha
    return [
        report.Card("Candidate", result, f"after {format_duration(ends_s)}", state),
        report.Card("Largest share", f"{_largest(told):.0%}", "of live requests"),
        report.Card("Evidence against the candidate", f"{total:.3g}", f"a rollback needs {needed:g}"),
    ]


def _largest(told: _Told) -> float:
    return max((each.share for _, each in told.decisions if isinstance(each, Advance)), default=0.0)


def _evidence(told: _Told) -> report.Figure:
    names = dict.fromkeys(figure.name for _, decision in told.decisions for figure in decision.figures)
    needed = 1 / told.settings.alpha
    series = [_curve(told, name) for name in names]
    return report.line_chart(
        "Evidence that the candidate is worse",
        series,
        report.Axis("time", kind="seconds", lo=0.0),
        report.Axis("e-value", scale="log", lo=_LEAST_EVIDENCE),
        marks=[report.Mark(needed, f"rolled back at a sum of {needed:g}")],
        note="Each curve is one criterion of the comparison. Very small values are drawn at the lower edge.",
    )


def _curve(told: _Told, name: str) -> report.Series:
    points = [
        (at_s, min(max(figure.evidence, _LEAST_EVIDENCE), 100 / told.settings.alpha))
        for at_s, decision in told.decisions
        for figure in decision.figures
        if figure.name == name
    ]
    label = name.replace("slower than the stable", "slower than")  # it has to fit beside the chart
    return report.Series(
        label,
        [at_s for at_s, _ in points],
        [value for _, value in points],
    )


def _shares(told: _Told) -> report.Figure:
    times_s, shares = [0.0], [0.0]
    for at_s, decision in told.decisions:
        share = shares[-1]
        if isinstance(decision, Advance):
            share = decision.share
        elif not isinstance(decision, Keep):
            share = float(isinstance(decision, Promote))
        times_s.append(at_s)
        shares.append(share)
    return report.line_chart(
        "Live requests that the candidate answers",
        [report.Series("share", times_s, shares, step=True)],
        report.Axis("time", kind="seconds", lo=0.0),
        report.Axis("share", kind="share", lo=0.0, hi=1.0),
    )


def _comparisons(last: RolloutDecision) -> report.Block:
    headers = ["criterion", "candidate", "out of", "stable", "out of", "limit", "more observations needed", "evidence"]
    rows = [
        [
            each.name,
            each.seen,
            each.of,
            each.stable_seen if each.stable_of else None,
            each.stable_of or None,
            None if each.accepted is None else f"{each.accepted:.2%}",
            "not possible with the current results" if each.missing is None else each.missing,
            float(f"{each.evidence:.3g}"),
        ]
        for each in last.figures
    ]
    return report.table(headers, rows)


def _changes(told: _Told) -> report.Block:
    """All that changed something, and the last word."""
    shown: Sequence[tuple[float, RolloutDecision]] = [
        each for each in told.decisions[:-1] if not isinstance(each[1], Keep)
    ]
    rows = [
        [format_duration(at_s), _NAMES[type(decision)], _share(decision), decision.reason]
        for at_s, decision in [*shown[-_SHOWN:], told.decisions[-1]]
    ]
    return report.table(["after", "decision", "share", "why"], rows)


def _share(decision: RolloutDecision) -> str | None:
    return f"{decision.share:.0%}" if isinstance(decision, Advance) else None
