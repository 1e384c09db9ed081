"""A connection to NATS from a thread: its client runs on a loop of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from twoshift.batch.stores.known import without_password
from twoshift.errors import InvalidInput, NotFound, TryLater
from twoshift.extras import needed
from twoshift.streams.nats_pull import NatsPull

__all__ = ["NatsConnection", "NatsPlace"]

T = TypeVar("T")
_CONNECT_S, _ANSWER_S = 3.0, 20.0
_RETRY_S = 1.0
_ACCEPTED = (
    "nats://host:4222/SUBJECT or tls://host:4222/SUBJECT; add ?stream=NAME if several JetStream streams have the "
    "subject"
)


@dataclass(frozen=True, slots=True)
class NatsPlace:
    """A subject of a broker: nats://user:password@host:4222/subject?stream=NAME."""

    server: str
    subject: str
    shown: str
    stream: str | None = None

    @classmethod
    def parse(cls, url: str, field: str = "source") -> NatsPlace:
        """Raises InvalidInput."""
        parts, shown = urlsplit(url), without_password(url)
        subject, asked = parts.path.strip("/"), parse_qs(parts.query)
        if parts.scheme not in ("nats", "tls") or not parts.hostname or not subject or " " in subject:
            raise InvalidInput(field, shown, _ACCEPTED)
        if unknown := asked.keys() - {"stream"}:
            raise InvalidInput(field, shown, f"{_ACCEPTED}; the parameter {min(unknown)} is unknown")
        stream = asked["stream"][0] if "stream" in asked else None
        return cls(f"{parts.scheme}://{parts.netloc}", subject, shown, stream)


class NatsConnection:
    """Connects when it is first used; raises TryLater where the broker does not answer, InvalidInput else."""

    def __init__(self, place: NatsPlace, field: str = "source") -> None:
        """`field` is the setting that names the place."""
        self._place, self._field = place, field
        self._nats = needed("nats", "nats", place.shown, field)
        self.api = needed("nats.js.api", "nats", place.shown, field)
        self._errors = needed("nats.errors", "nats", place.shown, field)
        self._js_errors = needed("nats.js.errors", "nats", place.shown, field)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="twoshift-nats", daemon=True)
        self._thread.start()
        self._client: Any = None
        self._stream_name = place.stream

    @property
    def stream_name(self) -> str:
        """Of the stream that has the subject."""
        if self._stream_name is None:
            self._stream_name = self.run(self.jetstream().find_stream_name_by_subject(self._place.subject))
        return self._stream_name

    def jetstream(self) -> Any:
        """Of a client that is connected."""
        if self._client is None or self._client.is_closed:
            self._client = self.run(self._connected())
        return self._client.jetstream()

    def check_kept(self) -> None:
        """Raises InvalidInput for a stream whose messages go once somebody has seen them."""
        info = self.run(self.jetstream().stream_info(self.stream_name))
        if info.config.retention != self.api.RetentionPolicy.LIMITS:
            policy = self.api.RetentionPolicy(info.config.retention).value
            kept = (
                "a subject whose JetStream stream has the retention policy 'limits'; the stream "
                f"{self.stream_name!r} has the policy {policy!r}"
            )
            raise InvalidInput(self._field, self._place.shown, kept)

    def consumer(self, wanted: Any) -> NatsPull:
        """A new pull consumer of the subject."""
        js, stream = self.jetstream(), self.stream_name
        made = self.run(js.add_consumer(stream, wanted))
        pull = NatsPull(self._client, stream, made.name)
        self.run(pull.begin())
        return pull

    def pending(self, consumer: NatsPull) -> int:
        """Messages that it has not delivered yet."""
        return self.run(self.jetstream().consumer_info(consumer.stream, consumer.name)).num_pending

    def publish(self, payload: bytes, headers: dict[str, str]) -> None:
        """A message of the subject; returns once the broker has it."""
        self.run(self.jetstream().publish(self._place.subject, payload, headers=headers, timeout=_CONNECT_S))

    def last_headers(self) -> dict[str, str] | None:
        """Of the subject's last message; None where there is none."""
        js, stream = self.jetstream(), self.stream_name
        try:
            return self.run(js.get_last_msg(stream, self._place.subject)).headers or {}
        except NotFound:
            return None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns, in the words of this project where it fails."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_ANSWER_S)
        except self._js_errors.NotFoundError as error:
            subject = self._place.subject
            accepted = f"a subject of a JetStream stream; no JetStream stream has the subject {subject}"
            raise NotFound(self._field, self._place.shown, accepted) from error
        except (self._errors.AuthorizationError, self._errors.BadSubjectError) as error:
            raise InvalidInput(self._field, self._place.shown, f"{_ACCEPTED} ({error})") from error
        except (self._errors.Error, OSError, TimeoutError) as error:
            future.cancel()
            why = str(error) or type(error).__name__
            raise TryLater(f"{self._place.shown} does not answer ({why})", _RETRY_S) from error

    def close(self) -> None:
        """Disconnect and end the loop."""
        if self._client is not None:
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(_ANSWER_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connected(self) -> Any:
        async def ignore(_: Exception) -> None:
            """Errors come back from the calls that they concern."""

        more = {"user_credentials": creds} if (creds := os.environ.get("NATS_CREDS")) else {}
        connecting = self._nats.connect(
            self._place.server,
            connect_timeout=_CONNECT_S,
            allow_reconnect=False,  # who asks again connects again: the pauses are the stream's
            max_reconnect_attempts=1,
            error_cb=ignore,
            **more,
        )
        return await asyncio.wait_for(connecting, _CONNECT_S)  # it would go on trying
