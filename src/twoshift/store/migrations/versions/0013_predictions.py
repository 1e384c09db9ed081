"""What was predicted, and what came."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0013_predictions", "0012_deployment_minutes"


def upgrade() -> None:
    """A row for each figure that was measured."""
    op.create_table(
        "predictions",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("what", sa.String(200), nullable=False),
        sa.Column("unit", sa.String(16), nullable=False),
        sa.Column("predicted", sa.Double, nullable=False),
        sa.Column("measured", sa.Double, nullable=False),
        sa.Column("at_unix_s", sa.Double, nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("low", sa.Double),
        sa.Column("high", sa.Double),
    )
    op.create_index("predictions_by_owner", "predictions", ["owner", "number"])
