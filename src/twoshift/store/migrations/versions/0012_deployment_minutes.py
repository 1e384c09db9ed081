"""A day of what deployments did, for the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0012_deployment_minutes", "0011_usage_versions"


def upgrade() -> None:
    """A row for each server, deployment and minute."""
    op.create_table(
        "deployment_minutes",
        sa.Column("server", sa.String(200), primary_key=True),
        sa.Column("deployment", sa.String(200), primary_key=True),
        sa.Column("minute", sa.BigInteger, primary_key=True),
        sa.Column("figures", sa.JSON, nullable=False),
    )
    op.create_index("deployment_minutes_by_minute", "deployment_minutes", ["minute"])
