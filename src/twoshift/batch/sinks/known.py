"""Every output format by its name, which is also the suffix of its parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from twoshift.batch.part_stats import PartStats
from twoshift.batch.sinks.json_lines import JsonLinesSink
from twoshift.batch.sinks.parquet import ParquetSink
from twoshift.batch.sinks.response_lines import ResponseLinesSink
from twoshift.batch.sinks.sink import Sink
from twoshift.errors import Broken, first_line

__all__ = ["SINKS", "read_stats"]

SINKS: dict[str, Sink] = {
    "parquet": ParquetSink(),
    "jsonl": JsonLinesSink(),
    "lines": ResponseLinesSink(),
}


def read_stats(file: Any, location: str, output_format: str) -> PartStats:
    """What a part says about itself; raises Broken where it is not a complete part of a job."""
    try:
        return SINKS[output_format].stats(file, location)
    except (pa.ArrowException, OSError, KeyError, AttributeError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise Broken(f"{location} is not a complete part of a job: {first_line(error).rstrip('.')}") from error
