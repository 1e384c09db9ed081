"""Streams from Kafka: partitions, messages that are gone or sent twice, a cluster that does not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mock_kafka import MockKafka
from streaming import Streaming, running

from twoshift.errors import InvalidInput
from twoshift.streams.kafka_source import KafkaPlace, KafkaSource
from waiting import until


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture
def streaming(tmp_path: Path) -> Streaming:
    return Streaming(tmp_path)


def rows(ids: range) -> list[bytes]:
    return [b'{"id": %d, "x": %d}' % (row, row) for row in ids]


def test_all_partitions_are_read_once_and_each_in_order(streaming: Streaming, kafka: MockKafka) -> None:
    kafka.put("several", rows(range(10)), partition=0)
    kafka.put("several", rows(range(10, 20)), partition=3)
    streaming.run(source=kafka.url("several"))
    kafka.put("several", rows(range(20, 25)), partition=3)
    streaming.run(source=kafka.url("several"))
    found = streaming.ids()
    assert sorted(found) == list(range(25))
    assert [row for row in found if row < 10] == list(range(10))
    assert [row for row in found if row >= 10] == list(range(10, 25))


def test_a_message_that_is_delivered_twice_is_one_row(
    streaming: Streaming, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    consume = KafkaSource._consume

    def twice(self: KafkaSource, count: int, wait_s: float) -> list[Any]:
        found = consume(self, count, wait_s)
        return [each for message in found for each in (message, message)]

    monkeypatch.setattr(KafkaSource, "_consume", twice)
    kafka.put("twice", rows(range(10)))
    streaming.run(source=kafka.url("twice"))
    streaming.check_squares(10)


def test_a_message_without_a_value_is_a_dead_letter_that_names_its_partition(
    streaming: Streaming, kafka: MockKafka
) -> None:
    kafka.put("odd", [*rows(range(2)), b""])
    last = streaming.run(source=kafka.url("odd"))
    assert (last.rows, last.dead_letters) == (3, 1)
    assert streaming.letters()[0]["source"] == "odd:0@0-2"


def test_a_cluster_that_does_not_answer_is_asked_again(streaming: Streaming) -> None:
    stream = streaming.stream(source="kafka://127.0.0.1:1/rows", once=False)
    with running(stream):
        until(lambda: "source" in dict(stream.counts.snapshot.problems))
        assert "does not answer" in stream.counts.snapshot.problem


@pytest.mark.parametrize("url", ["kafka://host:9092", "kafka:///topic", "kafka://me:secret@host/topic"])
def test_an_address_without_a_topic_or_with_a_password_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="TOPIC"):
        KafkaPlace.parse(url)


def test_settings_of_the_client_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# ours\nsasl.username = me\nsasl.password=a=b\n")
    monkeypatch.setenv("KAFKA_CONFIG", str(file))
    config = KafkaPlace.parse("kafka://host:9092/topic").config()
    assert config == {"bootstrap.servers": "host:9092", "sasl.username": "me", "sasl.password": "a=b"}
    monkeypatch.setenv("KAFKA_CONFIG", str(tmp_path / "nothing"))
    with pytest.raises(InvalidInput, match="KAFKA_CONFIG"):
        KafkaPlace.parse("kafka://host:9092/topic").config()
