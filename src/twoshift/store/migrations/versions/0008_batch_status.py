"""A batch's status follows from its job: what is stored is only how it ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0008_batch_status", "0007_kinds"

_OVER = ("failed", "completed", "expired", "cancelled")


def upgrade() -> None:
    """Batches that are over keep their end; when the others came so far is known of their jobs."""
    op.add_column("batches", sa.Column("ended_as", sa.String(16)))
    batches = sa.table("batches", sa.column("status"), sa.column("ended_as"))
    ended = sa.update(batches).where(batches.c.status.in_(_OVER)).values(ended_as=batches.c.status)
    op.get_bind().execute(ended)
    op.create_index("ix_batches_ended_as", "batches", ["ended_as"])
    op.drop_index("ix_batches_status", "batches")
    for name in ("status", "in_progress_unix_s", "finalizing_unix_s"):
        op.drop_column("batches", name)
