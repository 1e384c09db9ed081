"""Schedules and their runs; notices of what has ended, and their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0005_triggers", "0004_usage"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.Column("since_unix_s", sa.Float, nullable=False),
        sa.Column("marker", sa.String(500), nullable=False),
        sa.Column("is_paused", sa.Boolean, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.UniqueConstraint("owner", "name"),
    )
    op.create_table(
        "schedule_runs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("schedule_id", sa.String(64), sa.ForeignKey("schedules.id"), nullable=False),
        sa.Column("key", sa.String(500), nullable=False),
        sa.Column("due_unix_s", sa.Float, nullable=False),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.UniqueConstraint("schedule_id", "key"),
    )
    op.create_table(
        "notices",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("at_unix_s", sa.Float, nullable=False),
        sa.Column("named", sa.JSON, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("owner", sa.String(200), nullable=False, index=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("webhook", sa.String(200), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("target", sa.String(300), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.Column("due_unix_s", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("told", sa.Text, nullable=False),
    )
    op.create_index("deliveries_by_due", "deliveries", ["state", "due_unix_s"])
