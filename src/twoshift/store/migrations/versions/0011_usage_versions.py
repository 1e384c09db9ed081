"""The ledger tells versions of a model apart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0011_usage_versions", "0010_rollouts"

_KEYS = ("day", "tenant", "lane", "model", "writer")
_COUNTED = ("rows", "tokens", "device_s", "harvested_s", "usd", "unpriced_s", "output_tokens", "output_usd")


def upgrade() -> None:
    """What was counted before goes on as version 1, as models without a registry have it."""
    op.create_table(  # anew: SQLite keeps a primary key for good
        "usage_versions",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("lane", sa.String(16), primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("version", sa.String(32), primary_key=True, server_default="1"),
        sa.Column("writer", sa.String(32), primary_key=True),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("device_s", sa.Double, nullable=False),
        sa.Column("harvested_s", sa.Double, nullable=False),
        sa.Column("usd", sa.Double),
        sa.Column("unpriced_s", sa.Double, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("output_usd", sa.Double),
    )
    before, after = (sa.table(name, *map(sa.column, (*_KEYS, *_COUNTED))) for name in ("usage_days", "usage_versions"))
    op.execute(after.insert().from_select([*_KEYS, *_COUNTED], sa.select(*before.c)))
    op.drop_table("usage_days")
    op.rename_table("usage_versions", "usage_days")
