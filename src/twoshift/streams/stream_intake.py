"""Streams as a server gets them: looked at, and remembered once."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from twoshift.batch.allowance import Allowance
from twoshift.batch.job_intake import settings_on
from twoshift.batch.job_seats import LiveFleet
from twoshift.batch.setting_values import Mark
from twoshift.batch.settings import JobSettings
from twoshift.batch.stores.known import without_password
from twoshift.blobs.roots import BROKERS
from twoshift.declare import declared
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.ports import JobRecord, JobStore
from twoshift.streams.known import outlet_for, source_for
from twoshift.streams.settings import StreamJobSettings, StreamSettings, make_stream
from twoshift.types import JobKindName, JobState

__all__ = ["StreamIntake", "stream_of"]

_QUEUED = "the stream is starting"
_NOT_THEIRS = [name for name, each in declared(StreamJobSettings).items() if Mark.HERE in each.marks]


def stream_of(record: JobRecord) -> tuple[StreamSettings, JobSettings]:
    """What was asked for."""
    settings, own = record.settings, declared(StreamSettings)
    stream = msgspec.convert({name: value for name, value in settings.items() if name in own}, StreamSettings)
    of_job = {name: value for name, value in settings.items() if name not in own}
    return stream, msgspec.convert(of_job, JobSettings)


class StreamIntake:
    """Any thread may call it."""

    def __init__(
        self, fleet_of: Callable[[str], LiveFleet], allowance_of: Callable[[str], Allowance]
    ) -> None:  # fmt: skip
        self._fleet_of, self._allowance_of = fleet_of, allowance_of
        self._adding = threading.Lock()  # one at a time is counted and added

    def submit(self, store: JobStore, data: dict[str, Any], owner: str) -> JobRecord:
        """A new stream, or the very same one that is not over; raises InvalidInput, NotFound, OverLimit."""
        stream, job = self._settings(data)
        allowed = self._allowance_of(owner)
        allowed.check_output(job.output)
        for field, place in (("source", stream.source), ("to", stream.to)):
            _check_place(place, field, allowed)
        source_for(stream, job, allowed.blobs_for).close()
        if (outlet := outlet_for(stream)) is not None:
            outlet.close()
        settings = msgspec.to_builtins(stream) | msgspec.to_builtins(job)
        with self._adding:
            if (same := _same(store, stream, job, owner)) is not None:
                return same
            allowed.check_open(store.open_jobs(owner))
            now_s, new_id = time.time(), f"stream-{uuid.uuid4().hex[:12]}"
            record = JobRecord(
                new_id, settings, JobState.QUEUED, now_s, now_s, _QUEUED, owner=owner, kind=JobKindName.STREAM
            )  # fmt: skip
            store.add(record)
        store.note(new_id, f"{job.adapter or job.model} over {stream.source} to {job.output}")
        return store.get(new_id)

    def _settings(self, data: dict[str, Any]) -> tuple[StreamSettings, JobSettings]:
        for name in (*_NOT_THEIRS, "metrics_port"):
            if data.get(name) is not None:
                raise Inapplicable(name, data[name], "on a server: the stream runs on the server's own replicas")
        if "source" not in data:
            raise InvalidInput(
                "source",
                None,
                "a folder, a bucket prefix, or a URL that starts with nats://, kafka:// or postgresql://",
            )
        stream, job = make_stream(data)
        return stream, settings_on(self._fleet_of(job.model), job)


def _check_place(place: str | None, field: str, allowed: Allowance) -> None:
    """Raises InvalidInput for a broker or database that is not the owner's, or whose URL has a secret."""
    if place is None or not place.startswith(BROKERS):
        return  # a folder or a bucket: what reads it checks each name
    parts, shown = urlsplit(place), without_password(place)
    if shown != place:
        accepted = (
            "a URL without a password; put the password into the file that NATS_CREDS, KAFKA_CONFIG or PGPASSFILE "
            "names on the server"
        )
        raise InvalidInput(field, shown, accepted)
    if parts.scheme.startswith("postgres") and parts.query:
        raise InvalidInput(field, shown, "a URL without query parameters, such as postgresql://user@host:5432/db")
    scheme = "postgresql" if parts.scheme == "postgres" else parts.scheme
    allowed.check_place(f"{scheme}://{parts.netloc.rpartition('@')[2]}/{parts.path.strip('/')}", field)


def _same(store: JobStore, stream: StreamSettings, job: JobSettings, owner: str) -> JobRecord | None:
    """The very same stream that is not over; raises InvalidInput where something else has its folder."""
    output = job.output
    same = store.of_output(output)
    if same is None:
        if any(_is_one_folder(each.settings["output"], output) for each in store.unfinished()):
            raise InvalidInput(
                "output", output, "another output folder: an unfinished stream uses this folder under another path"
            )
        return None
    if same.owner != owner:
        raise InvalidInput("output", output, "another output folder: another job or stream writes to this folder")
    if same.kind is not JobKindName.STREAM or stream_of(same) != (stream, job):
        raise InvalidInput(
            "output", output, f"another output folder: the job or stream {same.id} writes to this folder"
        )
    return same


def _is_one_folder(one: str, other: str) -> bool:
    """Whether links or `..` make two names of a local folder."""
    return "://" not in one + other and os.path.realpath(one) == os.path.realpath(other)
