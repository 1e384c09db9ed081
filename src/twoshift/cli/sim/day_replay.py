"""`sim day --replay`: what an autoscaler saw on a real day, decided again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twoshift.cli.files import read_text
from twoshift.cli.output import pretty, show, table
from twoshift.errors import InvalidInput
from twoshift.units import format_duration

if TYPE_CHECKING:
    from twoshift.policy.scale_journal import ReplayedScale

__all__ = ["replay_day"]

_SHOWN = 20
_LONGEST_S = 60.0  # between two observations: a longer gap is a server that was not there


@dataclass(slots=True)
class _Day:
    """A replay, added up."""

    decisions: int = 0
    span_s: float = 0.0
    recorded_replica_s: float = 0.0
    decided_replica_s: float = 0.0
    changes: list[ReplayedScale] = field(default_factory=list["ReplayedScale"])  # of the fleet, as recorded
    differences: list[ReplayedScale] = field(default_factory=list["ReplayedScale"])

    def add(self, step: ReplayedScale, before: ReplayedScale | None) -> None:
        self.decisions += 1
        if before is not None and step.number == before.number + 1:
            took_s = min(max(0.0, step.now_s - before.now_s), _LONGEST_S)
            self.span_s += took_s
            self.recorded_replica_s += took_s * before.recorded.target
            self.decided_replica_s += took_s * before.decided.target
        if step.recorded.target != step.state.replicas.ready + step.state.replicas.starting:
            self.changes.append(step)
        if step.differs:
            self.differences.append(step)


def replay_day(path: str, overrides: dict[str, Any], as_json: bool) -> int:
    """Every decision of the log, by the same policy; 1 where one differs and nothing was said to be different."""
    from twoshift.policy.scale_journal import scale_replay

    day, before = _Day(), None
    try:
        for step in scale_replay(_entries(path), overrides):
            day.add(step, before)
            before = step
    except InvalidInput as error:
        if error.field in overrides:
            raise
        raise error.renamed(f"--replay {path}, {error.field}") from error
    data = {
        "decisions": day.decisions,
        "hours": day.span_s / 3600,
        "identical": not day.differences,
        "differences": [_told(step) for step in day.differences[:_SHOWN]],
        "changes": [_told(step) for step in day.changes],
        "replica_hours": {"recorded": day.recorded_replica_s / 3600, "decided": day.decided_replica_s / 3600},
    }
    parts = _what_if(day, overrides) if overrides else _comparison(day)
    show(as_json, data, *parts)
    return int(bool(day.differences) and not overrides)


def _entries(path: str) -> Iterator[Any]:
    lines = read_text(path, "--replay", "a decision log").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            cut = number == len(lines) and not line.endswith("\n")
            accepted = "a complete line; the log is truncated here" if cut else "a JSON object on each line"
            raise InvalidInput(f"line {number}", line, accepted) from None


def _told(step: ReplayedScale) -> dict[str, Any]:
    replicas = step.state.replicas
    return {
        "at": step.at,
        "replicas": replicas.ready + replicas.starting,
        "recorded": step.recorded.target,
        "decided": step.decided.target,
        "reason": _reason(step.recorded),
        "reason_now": _reason(step.decided),
    }


def _reason(scale: Any) -> str:
    """Of both shifts, where the second has a say."""
    for_jobs = f"; for jobs: {scale.workers.reason}" if scale.workers.target else ""
    return f"{scale.replicas.reason}{for_jobs}"


def _comparison(day: _Day) -> list[Any]:
    if not day.differences:
        words = f"{day.decisions:,} decisions over {format_duration(day.span_s)}, all identical to the recorded ones."
        return [*_changes(day), words]
    rows = [[step.at, _reason(step.recorded), _reason(step.decided)] for step in day.differences[:_SHOWN]]
    found = table(["<at", "<recorded", "<decided"], rows, title="Decisions that differ")
    more = f" The table shows the first {_SHOWN}." if len(day.differences) > _SHOWN else ""
    return [found, f"{len(day.differences):,} of {day.decisions:,} decisions differ from the recorded ones.{more}"]


def _changes(day: _Day) -> list[Any]:
    if not day.changes:
        return []
    rows = [[step.at, f"{step.recorded.target}", _reason(step.recorded)] for step in day.changes[-_SHOWN:]]
    shown = (
        f"The last {_SHOWN} of {len(day.changes):,} changes" if len(day.changes) > _SHOWN else "Changes of the fleet"
    )
    return [table(["<at", "replicas", "<why"], rows, title=shown)]


def _what_if(day: _Day, overrides: dict[str, Any]) -> list[Any]:
    settings = ", ".join(f"{name} {value:g}" for name, value in overrides.items())
    targets = [step for step in day.differences if step.recorded.target != step.decided.target]
    rows = list[list[str]]()
    last: tuple[int, int] | None = None
    for step in targets:
        if (pair := (step.recorded.target, step.decided.target)) != last:
            rows.append([step.at, f"{pair[0]}", f"{pair[1]}", _reason(step.decided)])
        last = pair
    found = (
        [table(["<at", "recorded replicas", "new replicas", "<why"], rows[:_SHOWN], title=f"With {settings}")]
        if rows
        else []
    )
    hours = [pretty(each / 3600) for each in (day.recorded_replica_s, day.decided_replica_s)]
    return [
        *found,
        f"With {settings}, {len(targets):,} of {day.decisions:,} decisions ask for a different number of replicas: "
        f"{hours[1]} replica-hours instead of {hours[0]}. The load is as recorded and does not react to new decisions.",
    ]
