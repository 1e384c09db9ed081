"""Notices of a cloud, from a stand-in for its metadata server, and what becomes of a worker's shards."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_coordinator import FakePool, done, plan_of, run

from twoshift.batch.coordinator import Ending
from twoshift.batch.messages import Failed, GiveUp, Noticed
from twoshift.batch.spot_notices import SpotNotice
from twoshift.batch.spot_watch import noticed, watch_for_notice

AWS, GCP = "/latest/meta-data/spot/instance-action", "/computeMetadata/v1/instance/preempted"


class Metadata(BaseHTTPRequestHandler):
    """AWS's with a token, and GCP's with its header."""

    told: ClassVar[dict[str, str]] = {}

    def do_PUT(self) -> None:
        is_token = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._reply(200 if is_token else 400, "secret")

    def do_GET(self) -> None:
        is_aws, is_gcp = self.path == AWS, self.path == GCP
        if is_aws and self.headers.get("X-aws-ec2-metadata-token") != "secret":
            self._reply(401, "")
        elif is_gcp and self.headers.get("Metadata-Flavor") != "Google":
            self._reply(403, "")
        elif self.path in self.told:
            self._reply(200, self.told[self.path])
        else:
            self._reply(404, "not found")

    def _reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Metadata.told = {}
    made = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("path", "before", "after", "why"),
    [
        (AWS, None, '{"action": "terminate", "time": "2099-01-01T00:00:00Z"}', "terminate"),
        (GCP, "FALSE", "TRUE", "preempted"),
    ],
)
def test_a_metadata_server_is_asked_as_its_cloud_wants_it(
    server: str, path: str, before: str | None, after: str, why: str
) -> None:
    Metadata.told = {} if before is None else {path: before}
    assert noticed(server + path) is None
    Metadata.told = {path: after}
    found = noticed(server + path)
    assert found is not None
    assert why in found.why


def test_nobody_there_is_no_notice(tmp_path: Path) -> None:
    assert noticed("http://127.0.0.1:9/nothing") is None
    assert noticed(str(tmp_path / "notice")) is None


def test_a_file_that_appears_is_told_once(tmp_path: Path) -> None:
    heard: queue.Queue[SpotNotice] = queue.Queue()
    (tmp_path / "notice").write_text("")
    watch_for_notice(lambda: noticed(str(tmp_path / "notice")), heard.put, threading.Event())
    assert "exists" in heard.get(timeout=120).why


def on_notice(left_s: float, engine: str) -> tuple[Ending, FakePool, Any]:
    """Three shards of 10 s each by worker 0, whose machine goes after 12 s."""
    pool = FakePool(lambda _, lease, shard: done(lease, shard, 10.0))
    pool.reply(0, 12.0, Noticed(SpotNotice("the machine goes", left_s)))
    sent = pool.send

    def send(worker: int, message: Any) -> None:
        sent(worker, message)
        if isinstance(message, GiveUp):
            pool.scores = lambda _, lease, shard: done(lease, shard, 10.0)
            for lease in (3, 2):
                pool.reply(worker, 0.1, Failed(lease, "given up", given_up=True))

    pool.send = send  # type: ignore[method-assign]
    ending, coordinator = run(pool, plan_of(6, engine=engine))
    return ending, pool, coordinator


def test_on_a_cluster_another_worker_takes_the_shards_of_one_that_goes() -> None:
    ending, pool, coordinator = on_notice(left_s=6.0, engine="ray")
    record = coordinator.record(0.0)
    assert ending is Ending.DONE
    assert (0, GiveUp()) in pool.sent
    assert (record.notices, record.deaths) == (("the machine goes",), ())
    assert record.lost_s > 0
    assert {worker for worker, _ in pool.sent} == {0, 1}


def test_with_enough_time_a_shard_is_ended_first() -> None:
    ending, pool, coordinator = on_notice(left_s=120.0, engine="ray")
    assert ending is Ending.DONE
    assert (0, GiveUp()) not in pool.sent
    assert coordinator.record(0.0).lost_s == 0


def test_a_shard_that_takes_longer_than_there_is_time_is_handed_back_before_the_machine_goes() -> None:
    pool = FakePool(lambda worker, lease, shard: done(lease, shard, 10.0 if worker or lease < 2 else 1000.0))
    pool.reply(0, 12.0, Noticed(SpotNotice("the machine goes", 60.0)))
    told_s, sent = list[float](), pool.send

    def send(worker: int, message: Any) -> None:
        sent(worker, message)
        if isinstance(message, GiveUp):
            told_s.append(pool.now_s)
            pool.scores = lambda _, lease, shard: done(lease, shard, 10.0)
            for lease in (3, 2):
                pool.reply(worker, 0.1, Failed(lease, "given up", given_up=True))

    pool.send = send  # type: ignore[method-assign]
    ending, coordinator = run(pool, plan_of(6, engine="ray"))
    assert ending is Ending.DONE
    assert len(told_s) == 1
    assert 12.0 < told_s[0] < 12.0 + 60.0
    assert coordinator.record(0.0).lost_s > 0


def test_a_job_of_one_machine_stops_before_that_goes() -> None:
    ending, pool, coordinator = on_notice(left_s=8.0, engine="local")
    assert ending is Ending.STOPPED
    assert pool.now_s < 12.0 + 8.0 + 1.0
    assert coordinator.log.notices == ["the machine goes"]
