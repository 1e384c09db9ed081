"""Sources and outlets by what a stream's settings name."""

from __future__ import annotations

from collections.abc import Callable

from twoshift.batch.settings import JobSettings
from twoshift.ports import Blobs
from twoshift.streams.folder_source import FolderSource
from twoshift.streams.kafka_source import KafkaPlace, KafkaSource
from twoshift.streams.nats_connection import NatsPlace
from twoshift.streams.nats_outlet import NatsOutlet
from twoshift.streams.nats_source import NatsSource
from twoshift.streams.outlet import Outlet
from twoshift.streams.postgres_source import PostgresSource
from twoshift.streams.settings import POSTGRES, StreamSettings
from twoshift.streams.source import StreamSource

__all__ = ["outlet_for", "source_for"]


def source_for(settings: StreamSettings, job: JobSettings, blobs_for: Callable[[str], Blobs]) -> StreamSource:
    """Where its rows come from; raises InvalidInput."""
    if settings.source.startswith(("nats://", "tls://")):
        return NatsSource(NatsPlace.parse(settings.source))
    if settings.source.startswith("kafka://"):
        return KafkaSource(KafkaPlace.parse(settings.source))
    if settings.source.startswith(POSTGRES):
        table, cursor = settings.table or "", settings.cursor or ""
        return PostgresSource(settings.source, table, cursor, settings.settle)
    return FolderSource(settings.source, blobs_for, job.output, job.input_format, settings.settle)


def outlet_for(settings: StreamSettings) -> Outlet | None:
    """Where its results go besides the parts; raises InvalidInput."""
    return None if settings.to is None else NatsOutlet(NatsPlace.parse(settings.to, "to"))
