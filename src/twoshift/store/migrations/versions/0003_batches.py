"""Files, and batches of requests over them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003_batches", "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "files",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("filename", sa.String(300), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False, index=True),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.Column("expires_unix_s", sa.Float, index=True),
    )
    op.create_index("files_by_owner", "files", ["owner", "number"])
    op.create_table(
        "batches",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("input_file_id", sa.String(64), nullable=False, index=True),
        sa.Column("window", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False, index=True),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.Column("expires_unix_s", sa.Float, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, index=True),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("model", sa.String(200)),
        sa.Column("errors", sa.JSON),
        sa.Column("output_file_id", sa.String(64)),
        sa.Column("error_file_id", sa.String(64)),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("completed", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("not_run", sa.Integer, nullable=False),
        sa.Column("swept", sa.Boolean, nullable=False, index=True),
        sa.Column("in_progress_unix_s", sa.Float),
        sa.Column("finalizing_unix_s", sa.Float),
        sa.Column("completed_unix_s", sa.Float),
        sa.Column("failed_unix_s", sa.Float),
        sa.Column("expired_unix_s", sa.Float),
        sa.Column("cancelling_unix_s", sa.Float),
        sa.Column("cancelled_unix_s", sa.Float),
    )
    op.create_index("batches_by_owner", "batches", ["owner", "number"])
