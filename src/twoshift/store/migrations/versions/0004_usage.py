"""What tenants have had of the devices, day by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004_usage", "0003_batches"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "usage_days",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("lane", sa.String(16), primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("writer", sa.String(32), primary_key=True),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("device_s", sa.Double, nullable=False),
        sa.Column("harvested_s", sa.Double, nullable=False),
        sa.Column("usd", sa.Double),
        sa.Column("unpriced_s", sa.Double, nullable=False),
    )
