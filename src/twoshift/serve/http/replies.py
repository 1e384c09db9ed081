"""Requests to replies, whatever becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from twoshift.endpoints.faults import forget_frames
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import UNFORESEEN, Reply, Request

__all__ = ["Handler", "Refusal", "Replies"]

Handler = Callable[[Request], Awaitable[Reply]]
Refusal = Callable[[HttpError], Reply]

_logger = logging.getLogger("twoshift.serve")


class Replies:
    """Of all connections of a server: one for each request, by its handler or in place of it."""

    def __init__(self, handler: Handler, refusal: Refusal) -> None:
        self._handler, self._refusal = handler, refusal

    async def to(self, asked: Request | HttpError) -> Reply:
        """What a handler that fails leaves unsaid is a 500: a closed connection would say nothing."""
        try:
            if isinstance(asked, HttpError):
                return self._refusal(asked)
            return await (self._handler(asked) if asked.large is None else self._to_large(asked))
        except Exception:
            _logger.exception("an HTTP request has failed")
            return UNFORESEEN

    async def _to_large(self, asked: Request) -> Reply:
        """One whose body holds some of the room until it is answered."""
        try:
            if asked.packed is not None and asked.large is not None:
                asked.body, asked.packed = await asked.large.unpacked(asked.packed), None
            return await self._handler(asked)
        except HttpError as error:
            forget_frames(error)
            error.path = asked.path
            return self._refusal(error)
        finally:
            asked.give_room()
