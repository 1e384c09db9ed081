"""Streams from Kafka: partitions, messages that are gone or sent twice, a cluster that does not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from mock_kafka import MockKafka
from streaming import Streaming, running

from twoshift.errors import Broken, InvalidInput
from twoshift.streams.kafka_outlet import KafkaOutlet
from twoshift.streams.kafka_source import KafkaPlace, KafkaSource
from twoshift.streams.outlet import WindowMessages
from waiting import until

pytestmark = pytest.mark.usefixtures("often")


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


def test_a_cluster_that_does_not_answer_is_asked_again(streaming: Streaming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.streams.kafka_source._ANSWER_S", 0.5)
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


def ids(kafka: MockKafka, topic: str) -> dict[int, list[int]]:
    found = kafka.messages(topic)
    return {part: [msgspec.json.decode(each.value())["id"] for each in those] for part, those in found.items()}


def test_results_are_sent_to_a_topic_once_over_several_runs_and_in_order_in_each_partition(
    streaming: Streaming, kafka: MockKafka
) -> None:
    kafka.put("here", rows(range(20)))
    streaming.run(source=kafka.url("here"), to=kafka.url("there"))
    kafka.put("here", rows(range(20, 25)))
    streaming.run(source=kafka.url("here"), to=kafka.url("there"))
    streaming.run(source=kafka.url("here"), to=kafka.url("there"))  # nothing is left to send
    found = ids(kafka, "there")
    assert sorted(row for part in found.values() for row in part) == list(range(25))
    assert all(part == sorted(part) for part in found.values())
    assert sum(bool(part) for part in found.values()) > 1
    first = kafka.messages("there")[0][0]
    assert msgspec.json.decode(first.value()) == {"id": 0, "squared": 0.0, "error": None}
    assert dict(first.headers())["twoshift-id"].endswith(b"-0-0")


@pytest.mark.parametrize("rows_sent", [0, 7, 19, 20])
def test_a_window_that_was_sent_in_part_is_finished_and_no_message_is_there_twice(
    streaming: Streaming, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, rows_sent: int
) -> None:
    send_row = KafkaOutlet._send_row

    def cut(self: KafkaOutlet, window: WindowMessages, row: int, payload: bytes, is_last: bool) -> None:
        if row < rows_sent:
            send_row(self, window, row, payload, is_last)
        if row + 1 >= rows_sent:
            self._flush()
            raise Broken("killed, after the cluster has the messages")

    here, there = f"from-{rows_sent}", f"to-{rows_sent}"
    kafka.put(here, rows(range(20)))
    with monkeypatch.context() as patch:
        patch.setattr(KafkaOutlet, "_send_row", cut)
        with pytest.raises(Broken, match="killed"):
            streaming.run(source=kafka.url(here), to=kafka.url(there))
    assert sum(map(len, ids(kafka, there).values())) == rows_sent  # this cluster shows what was not committed
    kafka.put(here, rows(range(20, 23)))
    streaming.run(source=kafka.url(here), to=kafka.url(there))
    found = ids(kafka, there)
    assert sorted(row for part in found.values() for row in part) == list(range(23))
    assert all(part == sorted(part) for part in found.values())


def test_a_topic_whose_messages_have_expired_gets_only_what_is_new(
    streaming: Streaming, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.put("old", rows(range(5)))
    streaming.run(source=kafka.url("old"), to=kafka.url("expired"))
    monkeypatch.setattr(KafkaOutlet, "_last_messages", lambda *_: {})  # as a topic tells whose messages are deleted
    kafka.put("old", rows(range(5, 8)))
    streaming.run(source=kafka.url("old"), to=kafka.url("expired"))
    assert sorted(row for part in ids(kafka, "expired").values() for row in part) == list(range(8))


def test_a_cluster_that_does_not_answer_gets_the_results_later(
    streaming: Streaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.streams.kafka_outlet._ANSWER_S", 0.5)
    streaming.put("a.jsonl", range(3))
    stream = streaming.stream(to="kafka://127.0.0.1:1/results", once=False)
    with running(stream):
        until(lambda: "outlet" in dict(stream.counts.snapshot.problems))
        assert "does not answer" in stream.counts.snapshot.problem


def test_a_topic_that_others_write_to_and_a_place_that_is_none_are_refused(
    streaming: Streaming, kafka: MockKafka
) -> None:
    kafka.put("others", [b"somebody else's"])
    streaming.put("a.jsonl", range(3))
    with pytest.raises(InvalidInput, match="only this stream"):
        streaming.run(to=kafka.url("others"))
    with pytest.raises(InvalidInput, match="kafka://host:9092/TOPIC"):
        streaming.run(to="http://127.0.0.1/x")
