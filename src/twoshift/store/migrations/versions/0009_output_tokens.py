"""What language models have generated, and what of the dollars that was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0009_output_tokens", "0008_batch_status"


def upgrade() -> None:
    """Days that are counted already say nothing of it."""
    op.add_column("usage_days", sa.Column("output_tokens", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("usage_days", sa.Column("output_usd", sa.Double))
