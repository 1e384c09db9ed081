"""`sim replay`: the same events give the same decisions."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from twoshift.cli.commands import command
from twoshift.cli.files import read_text
from twoshift.cli.output import show
from twoshift.cli.params import JsonFlag
from twoshift.cli.sim.app import app
from twoshift.errors import Broken, InvalidInput

__all__ = ["replay_command"]


@command(app, "replay", "twoshift sim replay journal.jsonl")
def replay_command(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="File that `twoshift sim lanes --record` wrote.")],
    as_json: JsonFlag = False,
) -> None:
    """Replay a journal of `twoshift sim lanes --record`, and check that every decision is identical."""
    from twoshift.policy.journal import replay

    lines = read_text(journal, "JOURNAL", "a journal").splitlines()
    result = replay([_entry(line, number) for number, line in enumerate(lines, start=1)])
    if result.difference is not None:
        raise Broken(f"the replay differs from the journal after {result.decisions:,} decisions: {result.difference}")
    data = {"decisions": result.decisions, "identical": True}
    show(as_json, data, f"{result.decisions:,} decisions, all identical to the recorded ones.")


def _not_a_number(text: str) -> Any:
    raise ValueError(text)


def _entry(line: str, number: int) -> list[Any]:
    try:
        entry = json.loads(line, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        raise InvalidInput(f"JOURNAL line {number}", line, "a JSON list on each line") from None
    if isinstance(entry, dict) and number == 1:
        raise InvalidInput(
            "JOURNAL line 1",
            line,
            "a journal of `twoshift sim lanes --record`; to replay a decision log, use `twoshift sim day --replay`",
        )
    if not isinstance(entry, list) or not entry:
        raise InvalidInput(f"JOURNAL line {number}", line, "a JSON list on each line")
    return entry
