"""A server that is killed in any state of a batch: the next one goes on, and every request has one result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from batch_clients import OVER, client_of, ended, outcome, request_line, started
from servers import Server, until
from user_models import written

pytest.importorskip("openai")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow
Starts = Callable[[], tuple[Server, Any]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starts]:
    """A server over the same folder each time, and a client of it."""
    pytest.importorskip("httptools")
    models, made = written(tmp_path), list[Server]()

    def start_() -> tuple[Server, Any]:
        made.append(Server(tmp_path, f"{models}:Troubled", "--slo-ms", "60000"))
        return made[-1], client_of(made[-1])

    yield start_
    for each in made:
        each.end()


def killed(server: Server) -> None:
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL


def nothing_is_left(folder: Path) -> None:
    """Of parts, and of files that were begun."""
    until(lambda: not list((folder / "files").glob("batch_*")))
    until(lambda: not list((folder / "files" / "_twoshift" / "staging").glob("*")))


def test_killed_as_it_is_looked_through(start: Starts, tmp_path: Path) -> None:
    server, client = start()
    ids = [str(k) for k in range(20_000)]
    batch = started(client, [request_line(each, "Troubled", "a text") for each in ids])
    assert batch.status == "validating"
    killed(server)
    _, client = start()
    done = ended(client, batch.id)
    assert done.status == "completed"
    output, _ = outcome(client, done, ids)
    assert [line["custom_id"] for line in output] == ids
    nothing_is_left(tmp_path)


def test_killed_again_and_again_as_it_runs(start: Starts, tmp_path: Path) -> None:
    server, client = start()
    ids = [str(k) for k in range(160)]
    batch = started(
        client, [request_line(each, "Troubled", ["sleep 0.02", "raise"][each == "7"]) for each in ids], "100s"
    )
    seen = 0
    for _ in range(3):
        until(partial(_is_further, client, batch.id, seen))
        seen = _done(client, batch.id)
        killed(server)
        server, client = start()
    done = ended(client, batch.id)
    assert done.status == "completed"
    output, errors = outcome(client, done, ids)
    assert [line["custom_id"] for line in errors] == ["7"]
    assert [line["custom_id"] for line in output] == [each for each in ids if each != "7"]
    nothing_is_left(tmp_path)


def _is_further(client: Any, batch_id: str, seen: int) -> bool:
    done = _done(client, batch_id)
    assert done >= seen  # what was told is never taken back
    return done > seen or client.batches.retrieve(batch_id).status in OVER


def _done(client: Any, batch_id: str) -> int:
    counts = client.batches.retrieve(batch_id).request_counts
    return counts.completed + counts.failed


def test_killed_as_its_files_are_made(start: Starts, tmp_path: Path) -> None:
    server, client = start()
    ids = [str(k) for k in range(3_000)]
    # Lines of hundreds of rows each: what is written takes a while
    lines = [request_line(each, "Troubled", ["a"] * 300) for each in ids]
    batch = started(client, lines)
    until(lambda: client.batches.retrieve(batch.id).status in ("finalizing", *OVER))
    killed(server)
    _, client = start()
    done = ended(client, batch.id)
    assert done.status == "completed"
    assert done.request_counts.completed == len(ids)
    content = client.files.content(done.output_file_id).content
    assert [line.split(b'"custom_id":"')[1].split(b'"')[0].decode() for line in content.splitlines()] == ids
    nothing_is_left(tmp_path)


def test_killed_as_it_is_cancelled(start: Starts, tmp_path: Path) -> None:
    server, client = start()
    ids = [str(k) for k in range(200)]
    batch = started(client, [request_line(each, "Troubled", "sleep 0.05") for each in ids], "100s")
    until(lambda: _done(client, batch.id) > 0)
    assert client.batches.cancel(batch.id).status == "cancelling"
    killed(server)
    _, client = start()
    done = ended(client, batch.id)
    assert done.status == "cancelled"
    output, errors = outcome(client, done, ids)
    assert output
    assert {line["error"]["code"] for line in errors} == {"batch_cancelled"}
    nothing_is_left(tmp_path)


def test_a_batch_whose_window_passes_while_nobody_is_there_expires(start: Starts, tmp_path: Path) -> None:
    server, client = start()
    ids = [str(k) for k in range(300)]
    batch = started(client, [request_line(each, "Troubled", "sleep 0.05") for each in ids], "6s")
    until(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    killed(server)
    _, client = start()
    done = ended(client, batch.id)
    assert done.status == "expired"
    _, errors = outcome(client, done, ids)
    assert {line["error"]["code"] for line in errors} == {"batch_expired"}
    nothing_is_left(tmp_path)


def test_an_upload_that_was_cut_off_is_forgotten(start: Starts, tmp_path: Path) -> None:
    server, _ = start()
    with server.connect() as made:
        head = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\n'
        made.sendall(
            b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
            b"content-length: 90000000\r\n\r\n" + head + b"x" * (8 << 20)
        )
        until(lambda: bool(list((tmp_path / "files" / "_twoshift" / "staging").glob("*"))))
        killed(server)
    _, client = start()
    nothing_is_left(tmp_path)
    assert not client.files.list().data


def test_a_server_that_is_stopped_in_peace_leaves_the_batch_to_the_next(start: Starts, tmp_path: Path) -> None:
    server, client = start()
    ids = [str(k) for k in range(100)]
    batch = started(client, [request_line(each, "Troubled", "sleep 0.05") for each in ids], "100s")
    until(lambda: _done(client, batch.id) > 0)
    assert server.stop() == 0
    _, client = start()
    done = ended(client, batch.id)
    assert done.status == "completed"
    outcome(client, done, ids)
    nothing_is_left(tmp_path)
