"""Messages as rows: a line each of a file that lies in memory, read as a job reads JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

from twoshift.batch.inputs import InputFile
from twoshift.streams.source import Age, Arrived, Position

__all__ = ["arrived_messages"]

_NOTHING = b"null"  # an empty message is a row, and no JSON object


def arrived_messages(
    location: str, payloads: Sequence[bytes], position: Position, ages: Sequence[float], has_more: bool
) -> Arrived:
    """Messages in order; `location` names them, so that an error tells which one it was."""
    # Outside of strings a newline in JSON is a space, and inside there is none
    lines = [each.replace(b"\n", b" ") if b"\n" in each else each for each in payloads]
    content = b"\n".join([line if line and not line.isspace() else _NOTHING for line in lines]) + b"\n"
    file = InputFile(location, len(content), location, "jsonl")
    return Arrived(
        (file,), (file.whole(rows=len(lines)),), len(lines), len(content), position, _grouped(ages), has_more,
        {location: content},
    )  # fmt: skip


def _grouped(ages: Sequence[float]) -> tuple[Age, ...]:
    """The oldest and the others: enough for a deadline, and for quantiles over many windows."""
    known = sorted(max(0.0, age) for age in ages)
    eighth = max(1, len(known) // 8)
    groups = [known[at : at + eighth] for at in range(0, len(known), eighth)]
    return tuple(Age(group[-1], len(group)) for group in groups)
