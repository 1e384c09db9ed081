"""`sim rollout --replay`: what was recorded of a rollout, decided again."""

from __future__ import annotations

import json
from typing import Any

from twoshift.cli.files import read_text, write_text
from twoshift.cli.output import note, show, table
from twoshift.errors import InvalidInput
from twoshift.units import format_duration

__all__ = ["replay_rollout"]

_SHOWN = 20


def replay_rollout(path: str, report: str | None, as_json: bool) -> int:
    """Every decision of the record, by the same policy; 1 where one differs."""
    from twoshift.policy.rollout_journal import rollout_replay
    from twoshift.policy.rollout_values import Keep

    entries = _entries(path)
    steps = list(rollout_replay(entries))
    if report:
        from twoshift.cli.rollout_page import rollout_page

        write_text(report, rollout_page(entries, "Rollout"), "--report")
        note(f"Report: {report}")
    changes = [step for step in steps if not isinstance(step.recorded, Keep)]
    different = [step for step in steps if step.differs]
    began_s = steps[0].now_s if steps else 0.0
    rows = [
        [format_duration(step.now_s - began_s), type(step.recorded).__name__, step.recorded.reason]
        for step in (different or changes)[:_SHOWN]
    ]
    words = f"{len(steps):,} decisions, all identical to the recorded ones."
    if different:
        words = f"{len(different):,} of {len(steps):,} decisions differ from the recorded ones."
    data = {"decisions": len(steps), "identical": not different, "changes": rows}
    show(as_json, data, *([table(["<after", "<decision", "<why"], rows)] if rows else []), words)
    return int(bool(different))


def _entries(path: str) -> list[list[Any]]:
    found = list[list[Any]]()
    for number, line in enumerate(read_text(path, "--replay", "the record of a rollout").splitlines(), start=1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, list) or not entry:
            raise InvalidInput(f"--replay {path}, line {number}", line, "a JSON list on each line")
        found.append(entry)
    return found
