"""A stream with its source, its model and its folder, by what its settings name."""

from __future__ import annotations

import msgspec

from twoshift.batch.settings import JobSettings
from twoshift.runtime.devices import usable_threads
from twoshift.streams.folder_source import FolderSource
from twoshift.streams.kafka_source import KafkaPlace, KafkaSource
from twoshift.streams.nats_connection import NatsPlace
from twoshift.streams.nats_outlet import NatsOutlet
from twoshift.streams.nats_source import NatsSource
from twoshift.streams.outlet import Outlet
from twoshift.streams.postgres_source import PostgresSource
from twoshift.streams.settings import POSTGRES, StreamSettings
from twoshift.streams.source import StreamSource
from twoshift.streams.stream import Stream, StreamParts
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import check_local_model, open_job_device, versioned

__all__ = ["stream_for"]


def stream_for(settings: StreamSettings, job: JobSettings) -> Stream:
    """A stream on a device of this process; raises InvalidInput before anything is loaded."""
    job = versioned(job)
    check_local_model(job)
    job = msgspec.structs.replace(job, threads=job.threads or usable_threads())
    parts = StreamParts(_source(settings, job), open_job_device, blobs_for, _outlet(settings))
    return Stream(settings, job, parts)


def _outlet(settings: StreamSettings) -> Outlet | None:
    return None if settings.to is None else NatsOutlet(NatsPlace.parse(settings.to, "to"))


def _source(settings: StreamSettings, job: JobSettings) -> StreamSource:
    if settings.source.startswith(("nats://", "tls://")):
        return NatsSource(NatsPlace.parse(settings.source))
    if settings.source.startswith("kafka://"):
        return KafkaSource(KafkaPlace.parse(settings.source))
    if settings.source.startswith(POSTGRES):
        table, cursor = settings.table or "", settings.cursor or ""
        return PostgresSource(settings.source, table, cursor, settings.settle)
    return FolderSource(settings.source, blobs_for, job.output, job.input_format, settings.settle)
