"""Sources and outlets by what a stream's settings name."""

from __future__ import annotations

from collections.abc import Callable

from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs
from twoshift.streams.folder_source import FolderSource, check_is_there
from twoshift.streams.kafka_outlet import KafkaOutlet
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
    if settings.once:
        check_is_there(settings.source)
    return FolderSource(settings.source, blobs_for, job.output, job.input_format, settings.settle)


def outlet_for(settings: StreamSettings) -> Outlet | None:
    """Where its results go besides the parts; raises InvalidInput."""
    if settings.to is None:
        return None
    if settings.to.startswith("kafka://"):
        return KafkaOutlet(KafkaPlace.parse(settings.to, "to"))
    if not settings.to.startswith(("nats://", "tls://")):
        accepted = "nats://host:4222/SUBJECT, tls://host:4222/SUBJECT or kafka://host:9092/TOPIC"
        raise InvalidInput("to", settings.to, accepted)
    return NatsOutlet(NatsPlace.parse(settings.to, "to"))
