"""Estimates the rows and tokens of a request from the size of its body, before the body is parsed."""

from __future__ import annotations

from twoshift.policy.host import LinearCost
from twoshift.types import CallSize

__all__ = ["BodyGuess"]

_TOKENS_PER_BYTE = 0.2
_EVERY = 8  # a look at each request would cost more than it tells


class BodyGuess:
    """Learns from the answered requests of one model."""

    def __init__(self, max_row_tokens: int) -> None:
        self._most = max_row_tokens
        self._rows, self._tokens = LinearCost(1.0), LinearCost(1.0)
        self._tokens.per_byte_s = _TOKENS_PER_BYTE if max_row_tokens > 1 else 0.0
        self._requests = 0
        self.rows_per_request = 1.0

    def size(self, body_bytes: int, requests: int = 1) -> CallSize:
        """Estimated size of the rows of `requests` requests with this many bytes in total."""
        rows = max(requests, round(self._rows.seconds(body_bytes, requests)))
        if self._most <= 1:
            return CallSize.uniform(rows)
        tokens = self._tokens.seconds(body_bytes, requests)
        return CallSize.uniform(rows, max(1, min(self._most, round(tokens / rows))))

    def seen(self, body_bytes: int, rows: int, tokens: int) -> None:
        """Learn that a request with this many bytes had this many rows and tokens."""
        self._requests += 1
        if self._requests % _EVERY != 1:
            return
        self._rows.observed(body_bytes, rows)
        if self._most > 1:
            self._tokens.observed(body_bytes, tokens)
        self.rows_per_request += 0.1 * (rows - self.rows_per_request)

    def counted(self, requests: int, rows: int) -> None:
        """Learn that this many requests had this many rows, if the bytes of their bodies are not known."""
        self.rows_per_request += 0.1 * (rows / requests - self.rows_per_request)
