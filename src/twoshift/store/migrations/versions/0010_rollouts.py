"""Rollouts of versions, and what was decided in them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0010_rollouts", "0009_output_tokens"


def upgrade() -> None:
    """Two new tables."""
    op.create_table(
        "rollouts",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("deployment", sa.String(200), nullable=False, index=True),
        sa.Column("active", sa.String(200), unique=True),
        sa.Column("configured", sa.Text, nullable=False),
        sa.Column("stable", sa.Text, nullable=False),
        sa.Column("candidate", sa.Text, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("who", sa.String(200), nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("share", sa.Double, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked", sa.JSON, nullable=False),
        sa.Column("created_unix_s", sa.Double, nullable=False),
        sa.Column("updated_unix_s", sa.Double, nullable=False),
        sa.Column("leader", sa.String(64), nullable=False),
        sa.Column("leader_shown", sa.String(200), nullable=False),
        sa.Column("leader_place", sa.String(200), nullable=False),
        sa.Column("leader_process", sa.Integer, nullable=False),
        sa.Column("leader_seen_unix_s", sa.Double, nullable=False),
    )
    op.create_table(
        "rollout_events",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("rollout_id", sa.String(64), sa.ForeignKey("rollouts.id"), nullable=False),
        sa.Column("at_unix_s", sa.Double, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("figures", sa.JSON, nullable=False),
    )
    op.create_index("rollout_events_by_rollout", "rollout_events", ["rollout_id", "number"])
