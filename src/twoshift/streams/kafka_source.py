"""A topic of Kafka, read from explicit offsets of its partitions: no consumer group has state that counts."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twoshift.errors import Broken, InvalidInput, TryLater
from twoshift.extras import needed
from twoshift.streams.messages import arrived_messages
from twoshift.streams.source import Arrived, Position, Waiting

__all__ = ["KafkaPlace", "KafkaSource"]

_log = logging.getLogger(__name__)
_ACCEPTED = "kafka://host:9092/TOPIC, or kafka://host1:9092,host2:9092/TOPIC"
_MOST_MESSAGES = 5000  # that are asked for at once
_MORE_S = 0.01  # for others, after the first message
_ANSWER_S, _RETRY_S = 5.0, 1.0
_ASK_EVERY_S = 2.0  # how far the partitions are, while nothing comes
_LOOK_EVERY_S = 30.0  # for new partitions
_FIRST_BYTES = 512.0  # of a message, until some were seen
_QUEUE_KB = 16 << 10  # that the client reads ahead


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """A topic of a cluster."""

    servers: str
    topic: str
    shown: str

    @classmethod
    def parse(cls, url: str, field: str = "source") -> KafkaPlace:
        """Raises InvalidInput."""
        parts = urlsplit(url)
        topic = parts.path.strip("/")
        if parts.scheme != "kafka" or not parts.netloc or "@" in parts.netloc or not topic or "/" in topic:
            raise InvalidInput(
                field, url, f"{_ACCEPTED}; put users and passwords into the file that KAFKA_CONFIG names"
            )
        return cls(parts.netloc, topic, url)

    def config(self) -> dict[str, str]:
        """For a client; what librdkafka takes besides is in the file that KAFKA_CONFIG names, a `key=value` a line."""
        given = {"bootstrap.servers": self.servers}
        if (path := os.environ.get("KAFKA_CONFIG")) is None:
            return given
        try:
            lines = [line.strip() for line in Path(path).read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput("KAFKA_CONFIG", path, f"a file that can be read ({error})") from error
        pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
        return given | {name.strip(): value.strip() for name, _, value in pairs}


class KafkaSource:
    """A StreamSource."""

    needs_all_marks = False

    def __init__(self, place: KafkaPlace) -> None:
        self._place, self.name = place, place.shown
        self._kafka = needed("confluent_kafka", "kafka", place.shown, "source")
        self._consumer: Any = None
        self._next: dict[int, int] = {}  # partition -> the first offset that was not taken
        self._ends: dict[int, int] = {}  # of partitions, as the cluster has told them
        self._looked_s = self._asked_s = 0.0
        self._trouble = ""  # as the client has told it
        self._message_bytes = _FIRST_BYTES

    def begin(self, marks: Sequence[Position]) -> None:
        """Behind the last messages that were committed; connects when it is first asked."""
        if marks:
            self._next = {int(partition): offset for partition, offset in marks[-1]["offsets"].items()}

    def take(self, most_rows: int, most_bytes: int, wait_s: float) -> Arrived | None:
        """The next messages of any partition, in the order of each."""
        self._connect()
        count = max(1, min(most_rows, _MOST_MESSAGES, int(most_bytes / self._message_bytes)))
        found = self._consume(1, wait_s)
        if not found:
            if self._trouble:
                self._look(time.monotonic())  # raises where nobody answers
                self._trouble = ""
            self._ask_ends()
            return None
        return self._arrived(found + (self._consume(count - 1, _MORE_S) if count > 1 else []))

    def waiting(self) -> Waiting:
        """By the ends of the partitions, as the last messages told them."""
        if self._consumer is None:
            return Waiting(None)
        rows = 0
        for partition, offset in self._next.items():
            _, end = self._consumer.get_watermark_offsets(self._place_of(partition), cached=True)
            rows += max(0, max(end, self._ends.get(partition, 0)) - max(0, offset))
        return Waiting(rows)

    def merged(self, positions: Sequence[Position]) -> Position:
        """The last one, which has all partitions."""
        return positions[-1]

    def close(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _connect(self) -> None:
        now_s = time.monotonic()
        if self._consumer is None:
            settings = self._place.config() | {
                "group.id": "twoshift",  # the client wants one; nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _QUEUE_KB,
                "error_cb": self._told,
            }
            try:
                self._consumer = self._kafka.Consumer(settings, logger=_log)
            except self._kafka.KafkaException as error:
                raise InvalidInput("source", self.name, f"{_ACCEPTED} ({error})") from error
            self._looked_s = 0.0
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._look(now_s)

    def _ask_ends(self) -> None:
        """Nothing came: whether something is there all the same; raises TryLater where nobody answers."""
        now_s = time.monotonic()
        if now_s - self._asked_s < _ASK_EVERY_S:
            return
        try:
            for partition in self._next:
                place = self._place_of(partition)
                _, self._ends[partition] = self._consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
        except self._kafka.KafkaException as error:
            raise TryLater(f"{self.name} does not answer ({error})", _RETRY_S) from error
        self._asked_s = now_s

    def _told(self, error: Any) -> None:
        self._trouble = str(error)

    def _look(self, now_s: float) -> None:
        """Which partitions there are; raises TryLater where nobody answers."""
        try:
            topic = self._consumer.list_topics(self._place.topic, timeout=_ANSWER_S).topics[self._place.topic]
        except self._kafka.KafkaException as error:
            self._looked_s = 0.0
            raise TryLater(f"{self.name} does not answer ({error})", _RETRY_S) from error
        if topic.error is not None or not topic.partitions:
            why = topic.error or "this topic has no partitions"
            raise InvalidInput("source", self.name, f"an existing topic with partitions ({why})")
        new = topic.partitions.keys() - self._next.keys()
        self._next |= dict.fromkeys(new, self._kafka.OFFSET_BEGINNING)
        if new or self._looked_s == 0.0:
            self._consumer.assign([self._place_of(partition, offset) for partition, offset in self._next.items()])
        self._looked_s = now_s

    def _place_of(self, partition: int, offset: int = -1001) -> Any:
        return self._kafka.TopicPartition(self._place.topic, partition, offset)

    def _consume(self, count: int, wait_s: float) -> list[Any]:
        found = self._consumer.consume(count, timeout=wait_s)
        good = [message for message in found if message.error() is None]
        for message in found:
            if (error := message.error()) is not None:
                self._raise(error, message.partition())
        return good

    def _raise(self, error: Any, partition: int | None) -> None:
        kinds = self._kafka.KafkaError
        if error.code() == kinds._PARTITION_EOF:
            return
        if error.code() == kinds._AUTO_OFFSET_RESET:
            offset = self._next.get(partition or 0)
            raise Broken(
                f"{self.name}: offset {offset} of partition {partition} no longer exists, because Kafka deleted "
                "messages before the stream read them; start again with another output folder"
            )
        self.close()
        raise TryLater(f"{self.name} does not answer ({error})", _RETRY_S)

    def _arrived(self, messages: list[Any]) -> Arrived | None:
        now_s, payloads, ages, spans = time.time(), list[bytes](), list[float](), dict[int, int]()
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if offset < self._next[partition]:  # delivered before
                continue
            self._next[partition] = offset + 1
            spans.setdefault(partition, offset)
            payloads.append(message.value() or b"")
            kind, millis = message.timestamp()
            ages.append(now_s - millis / 1e3 if kind else 0.0)
        if not payloads:
            return None
        self._message_bytes = 0.9 * self._message_bytes + 0.1 * sum(map(len, payloads)) / len(payloads)
        ranges = " ".join(f"{partition}@{first}-{self._next[partition] - 1}" for partition, first in spans.items())
        position = {"offsets": {str(partition): offset for partition, offset in self._next.items()}}
        waiting = self.waiting().rows
        return arrived_messages(f"{self._place.topic}:{ranges}", payloads, position, ages, bool(waiting))
