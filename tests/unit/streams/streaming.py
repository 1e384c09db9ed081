"""Streams as the tests run them: in this process, with a small model of the user's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from user_models import square

from twoshift.batch.settings import JobSettings
from twoshift.streams import folder_source, kafka_source, nats_source, postgres_source, stream_host, stream_worker
from twoshift.streams import stream as stream_module
from twoshift.streams.progress import StreamSnapshot
from twoshift.streams.settings import StreamSettings, make_stream
from twoshift.streams.source import StreamSource
from twoshift.streams.stream import Stream, StreamParts
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.job_workers import open_job_device
from twoshift.wiring.streams import stream_for

_TIMES_AS_OFTEN = 10


def look_often(patch: pytest.MonkeyPatch) -> None:
    """Streams look more often than they do for users: no test waits for the next look."""
    for module, name in (
        (folder_source, "_LOOK_EVERY_S"),
        (kafka_source, "_ASK_EVERY_S"),
        (nats_source, "_ASK_EVERY_S"),
        (postgres_source, "_LOOK_EVERY_S"),
        (stream_module, "_POLL_S"),
        (stream_host, "_TICK_S"),
        (stream_host, "_TELL_EVERY_S"),
        (stream_worker, "_REPORT_EVERY_S"),
    ):
        patch.setattr(module, name, getattr(module, name) / _TIMES_AS_OFTEN)


@dataclass
class Streaming:
    """A folder with a model, an inbox and an output."""

    path: Path
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.path / "m.py").write_text(square())
        self.inbox.mkdir(exist_ok=True)

    @property
    def inbox(self) -> Path:
        return self.path / "inbox"

    @property
    def out(self) -> Path:
        return self.path / "out"

    def put(self, name: str, ids: range, *lines: str) -> None:
        """A file of rows with the columns id and x, and other lines after them."""
        rows = [f'{{"id": {row}, "x": {row}}}' for row in ids]
        (self.inbox / name).write_text("".join(f"{line}\n" for line in (*rows, *lines)))

    def settings(self, **more: Any) -> tuple[StreamSettings, JobSettings]:
        given = {
            "source": str(self.inbox), "output": str(self.out), "model": f"{self.path}/m.py:Square", "columns": ["x"],
            "keep": ["id"], "once": True, "settle": 0.0, "threads": 1,
        }  # fmt: skip
        return make_stream({**given, **self.more, **more})

    def stream(self, reads: StreamSource | None = None, **more: Any) -> Stream:
        settings, job = self.settings(**more)
        if reads is None:
            return stream_for(settings, job)
        return Stream(settings, job, StreamParts(reads, open_job_device, blobs_for))

    def run(
        self, reads: StreamSource | None = None, report: Callable[[StreamSnapshot], None] = lambda _: None, **more: Any
    ) -> StreamSnapshot:
        return self.stream(reads, **more).run(report)

    def parts(self) -> list[str]:
        return sorted(path.name for path in self.out.glob("part-*.parquet"))

    def rows(self) -> list[dict[str, Any]]:
        """What is committed, in order."""
        return [row for name in self.parts() for row in pq.read_table(self.out / name).to_pylist()]

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]

    def check_squares(self, count: int) -> None:
        """Every row once, in order, with its value."""
        rows = self.rows()
        assert [(row["id"], row["squared"], row["error"]) for row in rows] == [
            (row, float(row) ** 2, None) for row in range(count)
        ]

    def letters(self) -> list[dict[str, Any]]:
        paths = sorted(self.out.glob("_dead/*.jsonl"))
        return [msgspec.json.decode(line) for path in paths for line in path.read_bytes().splitlines()]


@contextmanager
def running(stream: Stream) -> Iterator[threading.Thread]:
    """Until the end of the block; a test that fails leaves no stream behind that asks for its rows for ever."""
    thread = threading.Thread(target=stream.run, args=(lambda _: None,))
    thread.start()
    try:
        yield thread
    except BaseException:
        stream.stop(now=True)
        raise
    finally:
        stream.stop()
        thread.join()
