"""One suite over every source of streams, real brokers included: rows once and in order, whatever the broker does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from mock_kafka import MockKafka
from real_nats import RealNats
from streaming import Streaming, running

from waiting import until

pytestmark = pytest.mark.usefixtures("often")


class Place(Protocol):
    """Where rows come from."""

    @property
    def url(self) -> str: ...

    def put(self, payloads: list[bytes]) -> None: ...


class FolderPlace:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.url, self._folder, self._files = str(folder), folder, 0

    def put(self, payloads: list[bytes]) -> None:
        (self._folder / f"{self._files:04d}.jsonl").write_bytes(b"".join(each + b"\n" for each in payloads))
        self._files += 1


class NatsPlace:
    def __init__(self, broker: RealNats, name: str) -> None:
        broker.make_stream(name, f"{name}.rows")
        self.url, self._broker, self._subject = broker.url(f"{name}.rows"), broker, f"{name}.rows"

    def put(self, payloads: list[bytes]) -> None:
        self._broker.put(self._subject, payloads)


class KafkaPlace:
    def __init__(self, cluster: MockKafka, topic: str) -> None:
        cluster.make_topic(topic)  # a stream refuses one that is not there
        self.url, self._cluster, self._topic = cluster.url(topic), cluster, topic

    def put(self, payloads: list[bytes]) -> None:
        self._cluster.put(self._topic, payloads)


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture(scope="module")
def nats_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNats]:
    broker = RealNats(tmp_path_factory.mktemp("nats"))
    yield broker
    broker.kill()


@pytest.fixture(params=["folder", "kafka", "nats"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return FolderPlace(tmp_path / "rows")
    name = f"s{abs(hash(str(tmp_path)))}"
    if request.param == "kafka":
        return KafkaPlace(request.getfixturevalue("kafka"), name)
    return NatsPlace(request.getfixturevalue("nats_broker"), name)


@pytest.fixture
def streaming(tmp_path: Path) -> Streaming:
    return Streaming(tmp_path)


def rows(ids: range) -> list[bytes]:
    return [b'{"id": %d, "x": %d}' % (row, row) for row in ids]


def test_rows_are_committed_once_and_in_order_over_several_runs(streaming: Streaming, place: Place) -> None:
    place.put(rows(range(30)))
    assert streaming.run(source=place.url).rows == 30
    assert streaming.run(source=place.url).rows == 0
    place.put(rows(range(30, 50)))
    assert streaming.run(source=place.url).rows == 20
    streaming.check_squares(50)


def test_a_stream_that_runs_commits_rows_as_they_come(streaming: Streaming, place: Place) -> None:
    stream = streaming.stream(source=place.url, once=False, fresh=0.3)
    with running(stream):
        for first in (0, 7, 14):
            place.put(rows(range(first, first + 7)))
            until(lambda most=first + 7: stream.counts.snapshot.rows == most)
    streaming.check_squares(21)
    assert stream.counts.snapshot.fresh_p99_s is not None


def test_small_memory_makes_small_windows_and_loses_nothing(streaming: Streaming, place: Place) -> None:
    place.put(rows(range(100)))
    place.put(rows(range(100, 200)))
    last = streaming.run(source=place.url, buffer=3000.0, compact=0)
    assert last.windows > 1
    streaming.check_squares(200)


def test_bad_rows_are_dead_letters_and_the_others_are_scored(streaming: Streaming, place: Place) -> None:
    bad = [b"no JSON", b"[1, 2]", b'{"id": 3, "x": "many"}', b"\xff\xfe"]
    place.put([*rows(range(3)), *bad, *rows(range(7, 9))])
    last = streaming.run(source=place.url)
    assert (last.rows, last.errors, last.dead_letters) == (9, 4, 4)
    assert [row["squared"] for row in streaming.rows()] == [0.0, 1.0, 4.0, None, None, None, None, 49.0, 64.0]
    assert len(streaming.letters()) == 4
    assert all(each["error"] for each in streaming.letters())
    assert streaming.run(source=place.url).dead_letters == 0


def test_a_first_row_that_cannot_be_scored_waits_for_one_that_can(streaming: Streaming, place: Place) -> None:
    stream = streaming.stream(source=place.url, once=False, fresh=0.3)
    with running(stream):
        place.put([b"no JSON"])
        until(lambda: stream.counts.snapshot.lag_s > 0)
        place.put(rows(range(2)))
        until(lambda: stream.counts.snapshot.rows == 3)
    assert [row["squared"] for row in streaming.rows()] == [None, 0.0, 1.0]
