"""What a server's store is told of its streams."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from twoshift.policy.job_states import JobMove
from twoshift.ports import JobStore
from twoshift.streams.hosted_stream import HostedStream, StreamEnd

__all__ = ["StreamRecords", "Usd"]

_log = logging.getLogger("twoshift.streams")
Usd = Callable[[str, float], float | None]  # of a model's device seconds; None without a price


class StreamRecords:
    """Raises TryLater where the database does not answer, Elsewhere where another server has it."""

    def __init__(self, store: JobStore, usd: Usd) -> None:
        self._store, self._usd = store, usd

    def ended(self, stream_id: str, end: StreamEnd) -> None:
        """For good."""
        if end.error is not None:
            self.failed(stream_id, str(end.error))
        elif self._store.move(stream_id, JobMove.FINISH):
            self._store.note(stream_id, "done")

    def failed(self, stream_id: str, why: str) -> None:
        """Until somebody resumes it."""
        if self._store.move(stream_id, JobMove.FAIL, why):
            _log.warning("stream %s has failed: %s", stream_id, why)
            self._store.note(stream_id, f"failed: {why}")

    def noted(self, stream: HostedStream) -> None:
        """What it has remarked."""
        while stream.remarks:
            self._store.note(stream.id, stream.remarks[0])
            del stream.remarks[0]

    def progressed(self, streams: Mapping[str, HostedStream]) -> None:
        """How they stand, by id."""
        self._store.progressed({name: self._progress(each) for name, each in streams.items()})
        for each in streams.values():
            each.is_told = True

    def usd(self, stream: HostedStream) -> float | None:
        """For its device time, by the server's price, or by the one that was submitted with it."""
        device_s, own = stream.used().device_s, stream.task.job.price_usd_per_hour
        told = self._usd(stream.model, device_s)
        return device_s * own / 3600 if told is None and own is not None else told

    def _progress(self, stream: HostedStream) -> dict[str, Any]:
        used = stream.used()
        now = dict[str, Any]() if stream.last is None else msgspec.to_builtins(stream.last)
        catch_up = now.pop("catch_up", None)
        left_s = catch_up and catch_up["seconds"]
        return now | {
            "objective_s": stream.task.settings.fresh,
            "is_behind": catch_up is not None,
            "catch_up_s": None if left_s is None or math.isinf(left_s) else left_s,  # None where it never will be
            "problems": dict(now.get("problems", ())),
            "device_s": used.device_s,
            "riding_s": used.riding_s,
            "usd": self.usd(stream),
            "held": stream.why_waits,
            "has_committed": stream.has_committed,  # in any run: after a restart its output has to be there
        }
