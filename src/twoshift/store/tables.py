"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
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
    UniqueConstraint,
)

__all__ = [
    "batches",
    "claims",
    "deliveries",
    "deployment_minutes",
    "files",
    "jobs",
    "metadata",
    "notes",
    "notices",
    "predictions",
    "rollout_events",
    "rollouts",
    "schedule_runs",
    "schedules",
    "usage_days",
]

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
    Column("due_unix_s", Float),  # when its window ends
    Column("kind", String(16), nullable=False, server_default="table"),
    Index("jobs_by_turn", "state", "owner", "due_unix_s", "number"),
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
    Column("owner", String(64), nullable=False),  # a day of one start of a server
    Column("shown", String(200), nullable=False),  # to people
    Column("place", String(200), nullable=False),  # where its process number means something
    Column("process", Integer, nullable=False),
    Column("seen_unix_s", Float, nullable=False),  # by the database's clock
)

files = Table(
    "files",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("owner", String(200), nullable=False),
    Column("filename", String(300), nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("status", String(16), nullable=False, index=True),  # uploading, processed, deleting
    Column("created_unix_s", Float, nullable=False),
    Column("expires_unix_s", Float, index=True),
    Index("files_by_owner", "owner", "number"),
)

batches = Table(
    "batches",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("owner", String(200), nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("input_file_id", String(64), nullable=False, index=True),
    Column("window", String(32), nullable=False),
    Column("ended_as", String(16), index=True),  # the status that it ended with; none: it is not over
    Column("created_unix_s", Float, nullable=False),
    Column("expires_unix_s", Float, nullable=False),
    Column("fingerprint", String(64), nullable=False, index=True),
    Column("details", JSON, nullable=False),  # what is asked once and never looked for
    Column("model", String(200)),
    Column("errors", JSON),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("total", Integer, nullable=False),
    Column("completed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("not_run", Integer, nullable=False),
    Column("swept", Boolean, nullable=False, index=True),  # its folder is gone
    Column("completed_unix_s", Float),
    Column("failed_unix_s", Float),
    Column("expired_unix_s", Float),
    Column("cancelling_unix_s", Float),
    Column("cancelled_unix_s", Float),
    Index("batches_by_owner", "owner", "number"),
)

usage_days = Table(
    "usage_days",
    metadata,
    Column("day", String(10), primary_key=True),  # of UTC: 2026-01-31
    Column("tenant", Text, primary_key=True),
    Column("lane", String(16), primary_key=True),
    Column("model", Text, primary_key=True),
    Column("version", String(32), primary_key=True, server_default="1"),  # of the model
    Column("writer", String(32), primary_key=True),  # one start of a server
    Column("rows", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("device_s", Double, nullable=False),
    Column("harvested_s", Double, nullable=False),
    Column("usd", Double),
    Column("unpriced_s", Double, nullable=False),
    Column("output_tokens", BigInteger, nullable=False, server_default="0"),
    Column("output_usd", Double),
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

rollouts = Table(
    "rollouts",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("deployment", String(200), nullable=False, index=True),
    Column("active", String(200), unique=True),  # its deployment, until it is over: there is one at a time
    Column("configured", Text, nullable=False),
    Column("stable", Text, nullable=False),
    Column("candidate", Text, nullable=False),
    Column("mode", String(16), nullable=False),
    Column("who", String(200), nullable=False),
    Column("settings", JSON, nullable=False),
    Column("state", JSON, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("share", Double, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked", JSON, nullable=False),
    Column("created_unix_s", Double, nullable=False),
    Column("updated_unix_s", Double, nullable=False),
    Column("leader", String(64), nullable=False),  # a start of a server
    Column("leader_shown", String(200), nullable=False),
    Column("leader_place", String(200), nullable=False),
    Column("leader_process", Integer, nullable=False),
    Column("leader_seen_unix_s", Double, nullable=False),  # by the database's clock
)

rollout_events = Table(
    "rollout_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("rollout_id", String(64), ForeignKey("rollouts.id"), nullable=False),
    Column("at_unix_s", Double, nullable=False),
    Column("text", Text, nullable=False),
    Column("figures", JSON, nullable=False),
    Index("rollout_events_by_rollout", "rollout_id", "number"),
)

deployment_minutes = Table(
    "deployment_minutes",
    metadata,
    Column("server", String(200), primary_key=True),
    Column("deployment", String(200), primary_key=True),
    Column("minute", BigInteger, primary_key=True),  # of Unix time
    Column("figures", JSON, nullable=False),
    Index("deployment_minutes_by_minute", "minute"),
)

predictions = Table(  # that were measured
    "predictions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("model", String(200), nullable=False),
    Column("what", String(200), nullable=False),
    Column("unit", String(16), nullable=False),
    Column("predicted", Double, nullable=False),
    Column("measured", Double, nullable=False),
    Column("at_unix_s", Double, nullable=False),
    Column("subject", String(64), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("low", Double),
    Column("high", Double),
    Index("predictions_by_owner", "owner", "number"),
)
