"""When a job's window ends, so that the next ones are found without looking at all that wait."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from twoshift.units import parse_duration

revision, down_revision = "0006_turns", "0005_triggers"


def upgrade() -> None:
    """A column, and an index by it; jobs that are not over have it at once."""
    op.add_column("jobs", sa.Column("due_unix_s", sa.Float))
    op.create_index("jobs_by_turn", "jobs", ["state", "owner", "due_unix_s", "number"])
    jobs = sa.table(
        "jobs",
        *(sa.column(name) for name in ("number", "state", "created_unix_s", "due_unix_s")),
        sa.column("settings", sa.JSON),
    )
    connection = op.get_bind()
    waiting = sa.select(jobs).where(jobs.c.state.in_(["queued", "running", "paused"]))
    for row in connection.execute(waiting).all():
        due, window = row.settings.get("due_unix_s"), row.settings.get("window")
        if due is None and window is not None:
            due = row.created_unix_s + parse_duration(window, "window")
        connection.execute(sa.update(jobs).where(jobs.c.number == row.number).values(due_unix_s=due))
