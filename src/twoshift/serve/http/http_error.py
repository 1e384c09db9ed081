"""Why a request is refused as it is read."""

from __future__ import annotations

from collections.abc import Sequence

from twoshift.endpoints.faults import Fault

__all__ = ["HttpError"]

_KINDS = {408: "request_timeout", 413: "too_large", 503: "overloaded"}


class HttpError(Exception):
    """A request that is refused as it is read."""

    def __init__(
        self, status: int, message: str, allow: Sequence[str] = (), retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.allow = allow  # methods, where it is the wrong one
        self.retry_after_s = retry_after_s
        self.path = ""  # of the request, where that was read: errors have the shape that its clients know

    def fault(self) -> Fault:
        """As the faces tell it."""
        kind = _KINDS.get(self.status, "invalid_request_error")
        return Fault(self.status, kind, str(self), retry_after_s=self.retry_after_s)
