"""The time that all who share a database go by."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Float, cast, extract, func, literal

__all__ = ["database_now"]


def database_now(connection: Connection) -> Any:
    """By one clock for all: PostgreSQL's; who shares an SQLite file shares a machine."""
    if connection.dialect.name == "postgresql":
        return cast(extract("epoch", func.clock_timestamp()), Float)
    return cast(literal(time.time()), Float)
