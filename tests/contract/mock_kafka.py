"""A Kafka cluster of the tests' own: the one that librdkafka has for its tests, in this process."""

from __future__ import annotations

from typing import Any

import pytest

from waiting import until

__all__ = ["MockKafka"]


class MockKafka:
    """Lives as long as its producer."""

    def __init__(self) -> None:
        kafka = pytest.importorskip("confluent_kafka")
        quiet = {"log_level": 0, "error_cb": lambda _: None}
        self._producer: Any = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", **quiet})
        brokers = self._producer.list_topics(timeout=120).brokers.values()
        self._servers = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def url(self, topic: str) -> str:
        return f"kafka://{self._servers}/{topic}"

    def make_topic(self, topic: str) -> None:
        """An empty one; the first message that is put makes one, too."""
        until(lambda: self._producer.list_topics(topic, timeout=120).topics[topic].error is None)

    def put(self, topic: str, payloads: list[bytes], partition: int = 0) -> None:
        for payload in payloads:
            self._producer.produce(topic, payload, partition=partition)
        assert self._producer.flush(30) == 0

    def messages(self, topic: str) -> dict[int, list[Any]]:
        """All that are there, by partition; those of transactions that were aborted, too: this cluster shows them."""
        kafka = pytest.importorskip("confluent_kafka")
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
        consumer = kafka.Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        partitions = self._producer.list_topics(topic, timeout=30).topics[topic].partitions
        found: dict[int, list[Any]] = {each: [] for each in partitions}
        consumer.assign([kafka.TopicPartition(topic, each, 0) for each in partitions])
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                found[message.partition()].append(message)
            ended += message.error() is not None
        consumer.close()
        return found
