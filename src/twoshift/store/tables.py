"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

__all__ = ["claims", "jobs", "metadata", "notes", "usage_days"]

metadata = MetaData()

jobs = Table(
    "jobs",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the order in which they came
    Column("id", String(64), nullable=False, unique=True),
    Column("settings", JSON, nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("progress", JSON),
    Column("owner", String(200), nullable=False),
    Column("created_unix_s", Float, nullable=False),
    Column("updated_unix_s", Float, nullable=False),
)

notes = Table(
    "job_notes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(64), ForeignKey("jobs.id"), nullable=False),
    Column("at_unix_s", Float, nullable=False),
    Column("text", Text, nullable=False),
    Index("job_notes_by_job", "job_id", "number"),
)

claims = Table(
    "claims",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),  # one start of a server
    Column("shown", String(200), nullable=False),  # to people
    Column("place", String(200), nullable=False),  # where its process number means something
    Column("process", Integer, nullable=False),
    Column("seen_unix_s", Float, nullable=False),  # by the database's clock
)

usage_days = Table(
    "usage_days",
    metadata,
    Column("day", String(10), primary_key=True),  # of UTC: 2026-01-31
    Column("tenant", Text, primary_key=True),
    Column("lane", String(16), primary_key=True),
    Column("model", Text, primary_key=True),
    Column("writer", String(32), primary_key=True),  # one start of a server
    Column("rows", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("device_s", Double, nullable=False),
    Column("harvested_s", Double, nullable=False),
    Column("usd", Double),
    Column("unpriced_s", Double, nullable=False),
)
