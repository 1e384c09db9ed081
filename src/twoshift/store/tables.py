"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = ["claims", "deliveries", "jobs", "metadata", "notes", "notices", "schedule_runs", "schedules"]

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

schedules = Table(
    "schedules",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("name", String(64), nullable=False),
    Column("spec", JSON, nullable=False),
    Column("created_unix_s", Float, nullable=False),
    Column("since_unix_s", Float, nullable=False),
    Column("marker", String(500), nullable=False),
    Column("is_paused", Boolean, nullable=False),
    Column("problem", Text, nullable=False),
    UniqueConstraint("owner", "name"),
)

schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("schedule_id", String(64), ForeignKey("schedules.id"), nullable=False),
    Column("key", String(500), nullable=False),
    Column("due_unix_s", Float, nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("output", Text, nullable=False),
    Column("reason", Text, nullable=False),
    UniqueConstraint("schedule_id", "key"),
)

notices = Table(  # that no delivery was made of yet
    "notices",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("owner", String(200), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("data", JSON, nullable=False),
    Column("at_unix_s", Float, nullable=False),
    Column("named", JSON, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("owner", String(200), nullable=False, index=True),
    Column("kind", String(64), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("webhook", String(200), nullable=False),
    Column("url", Text, nullable=False),
    Column("target", String(300), nullable=False),
    Column("body", Text, nullable=False),
    Column("created_unix_s", Float, nullable=False),
    Column("due_unix_s", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("told", Text, nullable=False),
    Index("deliveries_by_due", "state", "due_unix_s"),
)
