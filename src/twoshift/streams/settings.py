"""What a stream is asked to do: what a job is, about rows that keep coming, and how fresh its results have to be."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec

from twoshift.batch.setting_values import COLUMN, TABLE
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.config import naming_file, read_toml
from twoshift.declare import check, declared, setting, settings_of
from twoshift.decodable import decodable
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.values import FLAG, duration, size, text, whole

__all__ = ["POSTGRES", "StreamJobSettings", "StreamSettings", "make_stream", "read_stream"]

_OF_JOBS = (
    "output", "model", "text", "pair", "prompt_name", "prompt", "system", "max_tokens", "temperature", "top_p", "seed",
    "stop", "json_schema", "too_long", "empty", "columns", "types", "keep", "input_format", "output_format",
    "compression", "into", "into_table", "into_key", "partition_by", "price_usd_per_hour", "grace_seconds", "device",
    "precision", "threads", "trust_pickle", "adapter", "tensor_parallel", "batch_invariant", "registry",
    "load_seconds",
)  # fmt: skip


POSTGRES = ("postgresql://", "postgres://")


def _fields() -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(JobSettings, include_extras=True)
    kept = [each for each in declared(JobSettings).values() if each.name in _OF_JOBS]
    return [(each.name, hints[each.name], each.default) for each in kept]


# What a stream has of a job, declared there: for the options of its command
StreamJobSettings = msgspec.defstruct("StreamJobSettings", _fields(), frozen=True, kw_only=True)


@decodable
class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What only a stream has."""

    # fmt: off
    source: Annotated[
        str,
        setting("Where new rows arrive: a folder, a pattern, a bucket prefix, nats://host:4222/SUBJECT, "
                "kafka://host:9092/TOPIC, or postgresql://user@host/db with --table and --cursor.",
                None, "SOURCE")]
    table: Annotated[str | None, setting("For a PostgreSQL source: table whose rows are read.", TABLE)] = None
    cursor: Annotated[
        str | None,
        setting("For a PostgreSQL source: unique column of whole numbers that grow with each new row, such as a serial "
                "key.", COLUMN)] = None
    fresh: Annotated[
        float,
        setting("Freshness objective: maximum time from the arrival of a row to the commit of its result.", duration(),
                shown="30s")] = 30.0
    to: Annotated[
        str | None,
        setting("Also send the results, one message per row, to a NATS subject or a Kafka topic: "
                "nats://host:4222/SUBJECT or kafka://host:9092/TOPIC.",
                text("URL"))] = None
    once: Annotated[bool, setting("Stop when all rows that are now in the source have been committed.", FLAG)] = False
    settle: Annotated[
        float,
        setting("Waiting time before new data is read. A local file must be unchanged for this time. With "
                "PostgreSQL, the stream waits this time after it notices new rows, and then reads the rows.",
                duration(zero=True), shown="2s")] = 2.0
    buffer: Annotated[
        float, setting("Approximate memory for rows that are not committed yet.", size(), shown="96MB")] = 96e6
    compact: Annotated[
        int,
        setting("Merge every N output files of similar size into one file; 0 merges no files.",
                whole(0, 10_000))] = 60
    metrics_port: Annotated[
        int | None, setting("Serve Prometheus metrics on this port.", whole(1, 65535))] = None
    # fmt: on

    def __post_init__(self) -> None:
        check(self)
        if not self.source.strip() or "\0" in self.source:
            accepted = (
                "a folder, a pattern, a bucket prefix, or a URL that starts with nats://, kafka:// or postgresql://"
            )
            raise InvalidInput("source", self.source, accepted)
        is_database = self.source.startswith(POSTGRES)
        for name in ("table", "cursor"):
            value = getattr(self, name)
            if is_database and value is None:
                noun = "column" if name == "cursor" else "table"
                raise InvalidInput(name, None, f"the name of a {noun}, because the source is a PostgreSQL database")
            if not is_database and value is not None:
                raise Inapplicable(name, value, "because the source is not a postgresql:// URL")
        if self.compact == 1:
            raise InvalidInput("compact", self.compact, "0 (merge no files) or a number of at least 2")


def make_stream(data: dict[str, Any]) -> tuple[StreamSettings, JobSettings]:
    """Settings from plain values; raises InvalidInput that names the nearest known key for an unknown one."""
    own = {name: value for name, value in data.items() if name in declared(StreamSettings)}
    of_job = {name: value for name, value in data.items() if name not in own}
    for name in ("model", "output"):
        if name not in of_job:
            raise InvalidInput(f"--{name}", None, f"this option, or a .toml stream file with the key `{name}`")
    for name, value in of_job.items():
        if name not in _OF_JOBS:
            near = get_close_matches(name, [*declared(StreamSettings), *_OF_JOBS], 1, 0.4)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise Inapplicable(name, value, f"because streams have no setting with this name{hint}")
    stream = settings_of(StreamSettings, own)
    from twoshift.batch.stores.known import without_password  # slow to load: pyarrow

    return stream, make_settings({"inputs": [without_password(stream.source)], **of_job})


def read_stream(path: Path, overrides: dict[str, Any]) -> tuple[StreamSettings, JobSettings]:
    """A stream's TOML file with the flags that were given put over it; raises InvalidInput that names the key."""
    data = read_toml(path, "stream file")
    with naming_file(path, overrides):
        return make_stream({**data, **overrides})
