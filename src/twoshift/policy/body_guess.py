"""How many rows and tokens a request has, before anybody has parsed it: by the bytes of its body."""

from __future__ import annotations

from twoshift.policy.host import LinearCost
from twoshift.types import CallSize

__all__ = ["BodyGuess"]

_TOKENS_PER_BYTE = 0.2
_EVERY = 4  # a look at each request would cost more than it tells


class BodyGuess:
    """Learned from the requests of one model that were answered."""

    def __init__(self, max_row_tokens: int) -> None:
        self._most = max_row_tokens
        self._rows, self._tokens = LinearCost(1.0), LinearCost(1.0)
        self._tokens.per_byte_s = _TOKENS_PER_BYTE if max_row_tokens > 1 else 0.0
        self._requests = 0
        self.rows_per_request = 1.0

    def size(self, body_bytes: int, requests: int = 1) -> CallSize:
        """Of the rows of so many requests, of so many bytes together."""
        rows = max(requests, round(self._rows.seconds(body_bytes, requests)))
        if self._most <= 1:
            return CallSize.uniform(rows)
        tokens = self._tokens.seconds(body_bytes, requests)
        return CallSize.uniform(rows, max(1, min(self._most, round(tokens / rows))))

    def seen(self, body_bytes: int, rows: int, tokens: int) -> None:
        """A request of so many bytes had so many rows, of so many tokens together."""
        self._requests += 1
        if self._requests % _EVERY != 1:
            return
        self._rows.observed(body_bytes, rows)
        if self._most > 1:
            self._tokens.observed(body_bytes, tokens)
        self.rows_per_request += 0.1 * (rows - self.rows_per_request)

    def counted(self, requests: int, rows: int) -> None:
        """So many requests, whose bytes are not those of a body, had so many rows together."""
        self.rows_per_request += 0.1 * (rows / requests - self.rows_per_request)
