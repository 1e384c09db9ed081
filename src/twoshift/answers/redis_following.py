"""The current answers in Redis, followed; and whether Redis answers at all."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, NamedTuple

from twoshift.answers.following import Follower
from twoshift.answers.generations import Generation
from twoshift.answers.redis_place import RedisPlace, redis_package, redis_place, redis_reason
from twoshift.answers.redis_writing import read_current
from twoshift.errors import TwoshiftError

__all__ = ["FollowedRedis", "OpenRedis"]

_logger = logging.getLogger("twoshift.answers")
_TIMEOUT_S = 2.0


class OpenRedis(NamedTuple):
    """One generation, and the hash that has its rows."""

    generation: Generation
    rows_key: str


class FollowedRedis(Follower):
    """Nothing is asked of a Redis that did not answer before it answers here."""

    def __init__(self, location: str, key: str) -> None:
        """Raises InvalidInput, NotInstalled."""
        super().__init__(location, key)
        self.place: RedisPlace = redis_place(location, "precomputed")
        self._redis = redis_package(location)
        self._looking, self._refusal = threading.Lock(), ""
        self._client: Any = None  # of who looks
        self._open: OpenRedis | None = None
        self.down = ""  # why it does not answer; empty where it does

    def close(self) -> None:
        """No more."""
        super().close()
        self._disconnect()
        self._open = None

    def now(self) -> OpenRedis | None:
        """The current one, though Redis may not answer just now; None where there is none, by `why_none`."""
        return self._open

    def look(self) -> None:
        """What is current; what was stays where Redis does not answer. For any thread."""
        with self._looking:
            try:
                if self._client is None:
                    self._client = self.place.connect(_TIMEOUT_S)
                self._found(read_current(self._client, self.place))
            except (self._redis.RedisError, OSError) as error:
                self._disconnect()
                self.failed(error)
            except TwoshiftError as error:
                self._open = None
                self._tell(f"the precomputed answers {self.location} cannot be used: {error}")

    def failed(self, error: Exception) -> None:
        """A look-up or a look has; answers are computed until one succeeds."""
        reason = redis_reason(error)
        self.counts.problems += 1
        if not self.down:
            _logger.warning(
                "Redis at %s does not answer: %s; precomputed answers are not used until Redis answers again",
                self.place.url,
                reason,
            )
        self.down = f"Redis at {self.place.url} does not answer: {reason}"
        if self._open is None:
            self.why_none = self.down

    def refused(self, error: Exception) -> None:
        """Redis answers, and does not do what it is asked: a right that is missing, or another type."""
        reason = redis_reason(error)
        if not self.down and reason != self._refusal:
            _logger.warning("Redis at %s refuses a look-up: %s", self.place.url, reason)
            self._refusal = reason

    def _found(self, made: Generation | None) -> None:
        if self.down:
            _logger.info("Redis at %s answers again", self.place.url)
            self.down = ""
        if made is None:
            self._open = None
            self._tell_gone()
        elif made.key != self.key:
            self._open = None
            self._tell(
                f"the answers in {self.location} have the key column {made.key}, not {self.key}: start the server with "
                f"--key {made.key}"
            )
        elif made.rows and not self._client.exists(*made.files):
            self._open = None
            self._tell(
                f"rows of {self.location} are missing in Redis, which may have evicted them: load the answers again "
                "with `twoshift load`"
            )
        elif self._open is None or made.files != self._open.generation.files:
            self._open = OpenRedis(made, next(iter(made.files), ""))
            self._opened(made)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # whatever a broken connection says of its end
                client.close()
