"""Which process has written a row, and whether it still runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Float, cast, extract, func, literal

__all__ = ["database_now", "has_ended", "place_here"]


def database_now(connection: Connection) -> Any:
    """By one clock for all: PostgreSQL's; who shares an SQLite file shares a machine."""
    if connection.dialect.name == "postgresql":
        return cast(extract("epoch", func.clock_timestamp()), Float)
    return cast(literal(time.time()), Float)


def place_here() -> str:
    """Where a process number means one process: this start of this machine, and its container."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return ""


def has_ended(place: str, process: int) -> bool:
    """Whether that process ran here, and is no more: nobody has to wait for its time to pass."""
    if not place or place != place_here():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
