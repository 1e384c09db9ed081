"""Jobs and their logs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("progress", sa.JSON),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.Column("updated_unix_s", sa.Float, nullable=False),
    )
    op.create_table(
        "job_notes",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.String(64), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("at_unix_s", sa.Float, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("job_notes_by_job", "job_notes", ["job_id", "number"])
