"""A stream with its source, its model and its folder, by what its settings name."""

from __future__ import annotations

import msgspec

from twoshift.batch.settings import JobSettings
from twoshift.runtime.devices import usable_threads
from twoshift.streams.known import outlet_for, source_for
from twoshift.streams.settings import StreamSettings
from twoshift.streams.stream import Stream, StreamParts
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import check_local_model, open_job_device, versioned

__all__ = ["stream_for"]


def stream_for(settings: StreamSettings, job: JobSettings) -> Stream:
    """A stream on a device of this process; raises InvalidInput before anything is loaded."""
    job = versioned(job)
    check_local_model(job)
    job = msgspec.structs.replace(job, threads=job.threads or usable_threads())
    parts = StreamParts(source_for(settings, job, blobs_for), open_job_device, blobs_for, outlet_for(settings))
    return Stream(settings, job, parts)
