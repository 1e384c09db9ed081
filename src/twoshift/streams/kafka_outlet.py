"""Results as messages of a Kafka topic: a window is a transaction, and each message says which row it is."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from twoshift.errors import Broken, InvalidInput, TryLater
from twoshift.extras import needed
from twoshift.streams.kafka_source import KafkaPlace
from twoshift.streams.outlet import WindowMessages, row_of

__all__ = ["KafkaOutlet"]

_log = logging.getLogger(__name__)
_ID, _LAST = "twoshift-id", "twoshift-last"  # which row it is; that it is the last one of its window
_ANSWER_S, _RETRY_S = 10.0, 1.0
_FLUSH_S = 60.0  # for the messages of a window to be acknowledged
_FIRST_SPAN, _MORE_SPAN = (
    64,
    16,
)  # messages at a partition's end that are looked at; so many times more then
_Row = tuple[int, float]  # a window and a row of it


class KafkaOutlet:
    """An Outlet. The last messages of the topic tell how far it is, however long ago that was.

    A transaction that was not committed is aborted by the next one of the same id, so that those who read committed
    messages see whole windows only. Where a cluster shows others all the same, the ids tell what is there: a partition
    has the beginning of its rows, and the last row of a window is sent when all others are acknowledged.
    """

    def __init__(self, place: KafkaPlace) -> None:
        self._place, self.shown = place, place.shown
        self._kafka = needed("confluent_kafka", "kafka", place.shown, "to")
        self._producer: Any = None
        self._ends: dict[int, _Row] = {}  # of each partition: the last row that is there; known with a producer
        self._failed: Any = None  # the first message that was not taken, and why

    def sent(self, job: str) -> int:
        """By the last messages of the topic."""
        self._disconnect()
        with self._asking():
            partitions = self._partitions()
            self._connect(job)
            last, is_whole = self._look(job, partitions)
        return 0 if last is None else int(last[0]) + is_whole

    def send(self, window: WindowMessages) -> None:
        """What is not there yet, in one transaction."""
        if self._producer is None:
            self.sent(window.job)
        with self._asking():
            producer: Any = self._producer
            producer.begin_transaction()
            for row, payload, is_last in _rows(window):
                self._send_row(window, row, payload, is_last)
            self._flush()
            producer.commit_transaction(_FLUSH_S)
        self._ends = dict.fromkeys(self._ends, (window.number, math.inf))

    def close(self) -> None:
        """Disconnect."""
        self._disconnect()

    def _send_row(self, window: WindowMessages, row: int, payload: bytes, is_last: bool) -> None:
        partition = row % len(self._ends)
        if (window.number, row) <= self._ends[partition]:
            return
        headers = {_ID: window.id_of(row).encode()} | ({_LAST: b"1"} if is_last else {})
        if is_last:
            self._flush()
        while True:
            try:
                self._producer.produce(self._place.topic, payload, partition=partition, headers=headers)
                break
            except BufferError:  # the client's queue is full
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        if self._failed is not None:
            raise self._kafka.KafkaException(self._failed)
        if left:
            raise TryLater(f"{self._place.shown} has not accepted {left} messages within {_FLUSH_S:g} s", _RETRY_S)

    def _delivered(self, error: Any, _message: Any) -> None:
        self._failed = self._failed or error

    def _connect(self, job: str) -> None:
        settings = self._place.config() | {
            "transactional.id": f"twoshift-{job}",
            "on_delivery": self._delivered,
            "error_cb": lambda error: _log.debug("%s: %s", self._place.shown, error),
        }
        self._failed = None
        self._producer = self._kafka.Producer(settings, logger=_log)
        self._producer.init_transactions(_ANSWER_S)

    def _disconnect(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(self._kafka.KafkaException):  # the next one of this id aborts what is open
                self._producer.purge()
                self._producer.abort_transaction(_RETRY_S)
            self._producer = None

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """What the client raises as our own errors; it is connected anew then, and looks how far it is."""
        try:
            yield
        except self._kafka.KafkaException as error:
            self._disconnect()
            raise self._told(error.args[0]) from error
        except TryLater:
            self._disconnect()
            raise

    def _told(self, error: Any) -> Exception:
        kinds, shown = self._kafka.KafkaError, self._place.shown
        if error.code() in (kinds._FENCED, kinds.PRODUCER_FENCED, kinds.INVALID_PRODUCER_EPOCH):
            return Broken(
                f"another stream with the same output folder also sends to {shown}: run only one of the two streams"
            )
        if error.code() in (kinds.MSG_SIZE_TOO_LARGE, kinds.RECORD_LIST_TOO_LARGE):
            return InvalidInput("to", shown, f"a topic that accepts messages as large as the results ({error.str()})")
        if error.code() in (kinds._INVALID_ARG, kinds.TOPIC_AUTHORIZATION_FAILED, kinds.UNSUPPORTED_VERSION):
            return InvalidInput("to", shown, f"a topic to which this stream may send in transactions ({error.str()})")
        return TryLater(f"{shown} does not answer ({error.str()})", _RETRY_S)

    # How far it is

    def _partitions(self) -> list[int]:
        client = self._kafka.Producer(self._place.config() | {"error_cb": lambda _: None}, logger=_log)
        topic = client.list_topics(self._place.topic, timeout=_ANSWER_S).topics[self._place.topic]
        if topic.error is not None or not topic.partitions:
            accepted = f"an existing topic with partitions ({topic.error or 'this topic has no partitions'})"
            raise InvalidInput("to", self._place.shown, accepted)
        return sorted(topic.partitions)

    def _look(self, job: str, partitions: list[int]) -> tuple[_Row | None, bool]:
        """The last row of all that are there, and whether its window is whole."""
        settings = self._place.config() | {
            "group.id": "twoshift",  # the client wants one; nothing is committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,  # what is there is all that is asked for
        }
        consumer = self._kafka.Consumer(settings, logger=_log)
        try:
            last = self._last_messages(consumer, partitions)
        finally:
            consumer.close()
        found = {partition: self._row(message, job) for partition, message in last.items()}
        self._ends = {each: found[each][0] if each in found else (-1, -1) for each in partitions}
        return max(found.values(), default=(None, False))

    def _last_messages(self, consumer: Any, partitions: list[int]) -> dict[int, Any]:
        """Of each partition that has any: looked for further and further before its end."""
        place = partial(self._kafka.TopicPartition, self._place.topic)
        ends = {each: consumer.get_watermark_offsets(place(each), timeout=_ANSWER_S) for each in partitions}
        left, found, span = (
            {each: low for each, (low, high) in ends.items() if high > low},
            dict[int, Any](),
            _FIRST_SPAN,
        )
        while left:
            begin = {each: max(low, ends[each][1] - span) for each, low in left.items()}
            consumer.assign([place(each, offset) for each, offset in begin.items()])
            found |= self._read_to_end(consumer, set(left))
            left = {each: low for each, low in left.items() if each not in found and begin[each] > low}
            span *= _MORE_SPAN
        return found

    def _read_to_end(self, consumer: Any, partitions: set[int]) -> dict[int, Any]:
        """The last message of each; none where there are only marks of transactions and what was aborted."""
        last, until_s = dict[int, Any](), time.monotonic() + _FLUSH_S
        while partitions and time.monotonic() < until_s:
            message = consumer.poll(_ANSWER_S)
            if message is None:
                break
            if message.error() is None:
                last[message.partition()] = message
            elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
            else:
                raise self._kafka.KafkaException(message.error())
        if partitions:
            raise TryLater(f"reading the last messages of {self._place.shown} takes too long", _RETRY_S)
        return last

    def _row(self, message: Any, job: str) -> tuple[_Row, bool]:
        headers = dict(message.headers() or ())
        found = row_of((headers.get(_ID) or b"").decode(errors="replace"), job)
        if found is None:
            topic = self._place.topic
            accepted = f"a topic that only this stream writes to: the last message of {topic} is from another producer"
            raise InvalidInput("to", self._place.shown, accepted)
        return found, _LAST in headers


def _rows(window: WindowMessages) -> Iterator[tuple[int, bytes, bool]]:
    """Rows with their numbers, and whether each is the last one."""
    held: tuple[int, bytes] | None = None
    for chunk in window.chunks():
        for payload in chunk:
            if held is not None:
                yield *held, False
            held = (0 if held is None else held[0] + 1, payload)
    if held is not None:
        yield *held, True
