"""What kind a job is of: a column, where its id and its settings had to be looked at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007_kinds", "0006_turns"


def upgrade() -> None:
    """Every job is one of a table, but for those of batches, which have the batch's id."""
    op.add_column("jobs", sa.Column("kind", sa.String(16), nullable=False, server_default="table"))
    jobs = sa.table("jobs", sa.column("id"), sa.column("kind"), sa.column("settings", sa.JSON))
    batches = sa.table("batches", sa.column("id"))
    of_batches = jobs.c.id.in_(sa.select(batches.c.id)) | (jobs.c.settings["endpoint"].as_string().is_not(None))
    op.get_bind().execute(sa.update(jobs).where(of_batches).values(kind="requests"))
