"""A subject of NATS JetStream, read from explicit sequence numbers: the broker keeps no state that counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from twoshift.errors import InvalidInput, TryLater
from twoshift.streams.messages import arrived_messages
from twoshift.streams.nats_connection import NatsConnection, NatsPlace
from twoshift.streams.nats_pull import NatsPull
from twoshift.streams.source import Arrived, Position, Waiting

__all__ = ["NatsSource"]

_MOST_MESSAGES = 5000  # that are asked for at once
_LEAST_WAIT_S = 0.05  # for an answer of the broker
_ASK_EVERY_S = 2.0  # whether the consumer is still there, while nothing comes
_INACTIVE_S = 60.0  # after which the broker forgets the consumer of a stream that has ended
_FIRST_BYTES = 512.0  # of a message, until some were seen


class _Told(NamedTuple):
    """What the broker says of a message, in the subject to reply to."""

    sequence: int  # in the stream
    number: int  # among those delivered by this consumer: one that is missing was lost on the way
    unix_s: float
    pending: int


class NatsSource:
    """A StreamSource."""

    needs_all_marks = False

    def __init__(self, place: NatsPlace) -> None:
        self._place, self.name = place, place.shown
        self._connection = NatsConnection(place)
        self._consumer: NatsPull | None = None  # None: to be made, behind the last message that was taken
        self._last, self._number = 0, 0  # sequence of that message; its number by the consumer
        self._pending: int | None = None
        self._asked_s = 0.0
        self._message_bytes = _FIRST_BYTES

    def begin(self, marks: Sequence[Position]) -> None:
        """Behind the last message that was committed; connects when it is first asked."""
        if marks:
            self._last = int(marks[-1]["sequence"])

    def take(self, most_rows: int, most_bytes: int, wait_s: float) -> Arrived | None:
        """The next messages."""
        count = max(1, min(most_rows, _MOST_MESSAGES, int(most_bytes / self._message_bytes)))
        try:
            consumer = self._consumer or self._new_consumer()
            messages = self._connection.run(consumer.fetch(count, max(_LEAST_WAIT_S, wait_s)))
        except (InvalidInput, TryLater):
            self._consumer = None
            raise
        if not messages:
            self._check()
            return None
        return self._arrived(messages)

    def waiting(self) -> Waiting:
        """As the last message, or the consumer, said."""
        return Waiting(self._pending)

    def merged(self, positions: Sequence[Position]) -> Position:
        """The last one."""
        return positions[-1]

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _new_consumer(self) -> NatsPull:
        api = self._connection.api
        wanted = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._last + 1,
            filter_subject=self._place.subject,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=_INACTIVE_S,
            mem_storage=True,
        )
        self._connection.check_kept()
        self._consumer = self._connection.consumer(wanted)
        self._number, self._asked_s = 0, time.monotonic()
        return self._consumer

    def _arrived(self, messages: list[Any]) -> Arrived | None:
        now_s = time.time()
        payloads, ages, first = list[bytes](), list[float](), 0
        for message in messages:
            told = _told(message.reply)
            if told.number != self._number + 1:  # something was lost on the way: read again from there
                self._consumer = None
                break
            self._number, self._pending = told.number, told.pending
            if told.sequence <= self._last:
                continue
            first = first or told.sequence
            self._last = told.sequence
            payloads.append(message.data)
            ages.append(now_s - told.unix_s)
        if not payloads:
            return None
        self._message_bytes = 0.9 * self._message_bytes + 0.1 * sum(map(len, payloads)) / len(payloads)
        location = f"{self._place.subject}:{first}-{self._last}"
        return arrived_messages(location, payloads, {"sequence": self._last}, ages, bool(self._pending))

    def _check(self) -> None:
        """Nothing came: whether the broker is there, and the consumer, which a restart of the broker ends."""
        if self._pending == 0 and time.monotonic() - self._asked_s < _ASK_EVERY_S:
            return
        self._asked_s = time.monotonic()
        try:
            self._pending = None if self._consumer is None else self._connection.pending(self._consumer)
        except (InvalidInput, TryLater):
            self._consumer = None
            raise


def _told(reply: str) -> _Told:
    """$JS.ACK.stream.consumer.delivered.sequence.number.time.pending; since 2.11 with domain and account before."""
    words = reply.split(".")
    at = 5 if len(words) == 9 else 7
    sequence, number, nanos, pending = (int(word) for word in words[at : at + 4])
    return _Told(sequence, number, nanos / 1e9, pending)
