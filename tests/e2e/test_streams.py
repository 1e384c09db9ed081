"""`twoshift stream` as a user runs it: the same answers as a job, stopped and killed and started again."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_runs import JobFolder, wait_for
from real_nats import RealNats
from real_server import free_port

STREAM = ["--model", "m.py:Square", "--columns", "x", "--keep", "id", "-o", "out"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealNats]:
    broker = RealNats(tmp_path / "nats")
    broker.make_stream("docs", "docs")
    yield broker
    broker.kill()


class StreamFolder(JobFolder):
    """The same folder with another command."""

    def words(self, *more: str) -> list[str]:
        return [super().words()[0], "stream", *more]


@pytest.fixture
def stream(job: JobFolder) -> Iterator[StreamFolder]:
    folder = StreamFolder(job.path)
    yield folder
    folder.end()


def test_a_stream_gives_the_rows_of_a_job_over_the_same_files(stream: StreamFolder, job: JobFolder) -> None:
    told = stream.run("docs", *STREAM, "--once", "--settle", "0s", "--price", "1.00", "--json")
    last = json.loads(told.out)
    assert (last["rows"], last["errors"], last["windows"]) == (300, 0, 1)
    assert last["usd"] > 0
    assert last["in_time_share"] is not None
    job.run("-o", "by-job")
    assert stream.rows("out") == job.rows("by-job")


def test_sigterm_commits_what_is_in_work_and_metrics_tell_how_it_runs(stream: StreamFolder) -> None:
    port = free_port()
    running = stream.start("docs", *STREAM, "--settle", "0s", "--fresh", "500ms", "--metrics-port", str(port))
    wait_for(lambda: "twoshift_stream_rows_total 300.0" in _figures(port), "the rows are committed")
    figures = _figures(port)
    assert "twoshift_stream_objective_seconds 0.5" in figures
    assert 'twoshift_stream_freshness_seconds{quantile="0.99"}' in figures
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "300 rows" in out


def _figures(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            return reply.read().decode()
    except OSError:  # it has not begun
        return ""


def test_a_stream_that_is_killed_again_and_again_has_every_message_once(stream: StreamFolder, broker: RealNats) -> None:
    rows = [b'{"id": %d, "x": %d}' % (row, row) for row in range(400)]
    words = [broker.url("docs"), *STREAM, "--fresh", "100ms"]
    for at in (0, 100, 200):
        broker.put("docs", rows[at : at + 100])
        running = stream.start(*words, "--compact", "0")
        wait_for(lambda most=at: len({row["id"] for row in stream.rows()}) > most, "a window is committed")
        running.kill()
        running.wait()
    broker.put("docs", rows[300:])
    stream.run(*words, "--once", "--compact", "3")
    assert [row["id"] for row in stream.rows()] == list(range(400))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["docs", "--model", "m.py:Square"], "--output is missing"),
        (["docs", *STREAM, "--fresh", "0s"], "--fresh"),
        (["docs", *STREAM, "--compact", "1"], "--compact"),
        (["nats://host", *STREAM], "SUBJECT"),
        (["docs", *STREAM, "--to", "mail://me"], "--to"),
        (["docs", *STREAM, "--cursor", "id"], "not a postgresql"),
        (["postgresql://me@nowhere/db", *STREAM], "--table"),
    ],
)
def test_what_cannot_be_used_is_said_before_a_model_is_loaded(
    stream: StreamFolder, words: list[str], told: str
) -> None:
    done = stream.run(*words, expect=2)
    assert told in done.err
