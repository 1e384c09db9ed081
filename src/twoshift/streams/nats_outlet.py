"""Results as messages of a NATS JetStream subject, each once: its id says which row it is."""

from __future__ import annotations

from twoshift.errors import InvalidInput
from twoshift.streams.nats_connection import NatsConnection, NatsPlace
from twoshift.streams.outlet import WindowMessages, row_of

__all__ = ["NatsOutlet"]

_ID, _LAST = "Nats-Msg-Id", "Twoshift-Last"  # which row it is; that it is the last one of its window


class NatsOutlet:
    """An Outlet. The last message of the subject tells how far it is, however long ago that was.

    A message is sent when the one before it is acknowledged, so that there is never a gap. The broker drops one whose
    id it has seen, where it was the acknowledgement that was lost.
    """

    def __init__(self, place: NatsPlace) -> None:
        self._place, self.shown = place, place.shown
        self._connection = NatsConnection(place, "to")
        self._at: tuple[int, int] | None = None  # window and row behind the last that is there; None: to be asked

    def sent(self, job: str) -> int:
        """By the last message of the subject."""
        headers = self._connection.last_headers()
        found = None if headers is None else row_of(headers.get(_ID, ""), job)
        if headers is None:
            self._at = (0, 0)
        elif found is None:
            subject = self._place.subject
            accepted = (
                f"a subject that only this stream writes to: the last message of {subject} is from another publisher"
            )
            raise InvalidInput("to", self._place.shown, accepted)
        else:
            self._at = (found[0] + 1, 0) if _LAST in headers else (found[0], found[1] + 1)
        return self._at[0]

    def send(self, window: WindowMessages) -> None:
        """Behind what is there; after a failure the broker is asked how far it is."""
        if self._at is None:
            self.sent(window.job)
        number, first = self._at or (0, 0)
        if number > window.number:
            return
        self._at = None  # until all are acknowledged
        self._publish(window, first if number == window.number else 0)
        self._at = (window.number + 1, 0)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _publish(self, window: WindowMessages, first: int) -> None:
        """One row is held back until the next is known, so that the last one can be marked."""
        held: tuple[int, bytes] | None = None
        row = 0
        for chunk in window.chunks():
            for payload in chunk:
                if held is not None:
                    self._connection.publish(held[1], {_ID: window.id_of(held[0])})
                held = (row, payload) if row >= first else None
                row += 1
        if held is not None:
            self._connection.publish(held[1], {_ID: window.id_of(held[0]), _LAST: "1"})
