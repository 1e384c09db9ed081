"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
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
)

__all__ = ["batches", "claims", "files", "jobs", "metadata", "notes"]

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
    Column("status", String(16), nullable=False, index=True),
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
    Column("in_progress_unix_s", Float),
    Column("finalizing_unix_s", Float),
    Column("completed_unix_s", Float),
    Column("failed_unix_s", Float),
    Column("expired_unix_s", Float),
    Column("cancelling_unix_s", Float),
    Column("cancelled_unix_s", Float),
    Index("batches_by_owner", "owner", "number"),
)
