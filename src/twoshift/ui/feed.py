"""Server-sent events: each figure is written once, however many pages are open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from twoshift.errors import TryLater

__all__ = ["Feed", "Sight"]

_MOST_PAGES, _MOST_OF_KEY = 1000, 100
_RETRY_S = 5.0
_BEGIN = b"retry: 3000\n\n"
_encoder = msgspec.json.Encoder()


class Sight(NamedTuple):
    """What somebody may see of the deployments."""

    all: bool  # what everybody has asked, too
    models: tuple[str, ...] = ()  # none: every deployment

    def sees(self, name: str) -> bool:
        """Whether a deployment is there at all."""
        return not self.models or name in self.models


class Feed:
    """Of the loop that serves."""

    def __init__(self) -> None:
        self._pages = Counter[str]()  # that are open, by the key's name
        self._is_closed = False
        self._next: asyncio.Future[None] | None = None
        self._told: Callable[[Sight], Any] = lambda _: {}
        self._written: dict[Sight, bytes] = {}

    def publish(self, told: Callable[[Sight], Any]) -> None:
        """To all pages, as each may see it."""
        self._told, self._written = told, {}
        self._wake()

    def close(self) -> None:
        """The server ends: so do the streams."""
        self._is_closed = True
        self._wake()

    def page(self, key: str, sight: Sight, is_valid: Callable[[], bool]) -> EventPage:
        """The events of one page, until it is no longer valid; raises TryLater where too many are open."""
        if self._pages[key] >= _MOST_OF_KEY or self._pages.total() >= _MOST_PAGES:
            raise TryLater("too many pages of the console are open: close some of them", _RETRY_S)
        self._pages[key] += 1
        return EventPage(self, key, sight, is_valid)

    def _wake(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self) -> bool:
        """For the next figures; False: there will be none."""
        if self._is_closed:
            return False
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)
        return not self._is_closed

    def written(self, sight: Sight) -> bytes:
        """The event that who sees so much gets."""
        found = self._written.get(sight)
        if found is None:
            found = self._written[sight] = b"event: now\ndata: %b\n\n" % _encoder.encode(self._told(sight))
        return found

    def left(self, key: str) -> None:
        """A page was closed."""
        self._pages[key] -= 1


class EventPage:
    """A reply in pieces."""

    def __init__(self, feed: Feed, key: str, sight: Sight, is_valid: Callable[[], bool]) -> None:
        self._feed, self._key, self._sight, self._is_valid = feed, key, sight, is_valid
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield _BEGIN
        while await self._feed.wait() and self._is_valid():
            yield self._feed.written(self._sight)

    async def aclose(self) -> None:
        """Once, whatever has ended it."""
        if self._is_open:
            self._is_open = False
            self._feed.left(self._key)
