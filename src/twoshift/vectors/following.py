"""An index that is searched while it may be replaced: a new generation is opened beside the old one, then used."""

from __future__ import annotations

import logging
from threading import Event

from twoshift.closable_thread import ClosableThread
from twoshift.errors import NotFound, TryLater, TwoshiftError
from twoshift.vectors.searching import BlobsFor, OpenIndex, open_current

__all__ = ["FollowedIndex"]

_logger = logging.getLogger("twoshift.index")
_EVERY_S = 2.0


class FollowedIndex:
    """Looks for a new generation now and then; any thread may ask for the one that is open."""

    def __init__(self, location: str, blobs_for: BlobsFor, every_s: float = _EVERY_S) -> None:
        self.location = location
        self._blobs_for, self._every_s = blobs_for, every_s
        self._open: OpenIndex | None = None
        self._why = f"the index {location} is being opened"
        self._thread = ClosableThread(self._follow, "twoshift-index")

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def close(self) -> None:
        """No more."""
        self._thread.close()
        self._open = None

    def now(self) -> OpenIndex:
        """The generation that is open, to be asked as long as it is held; raises TryLater where there is none yet."""
        if (found := self._open) is None:
            raise TryLater(self._why, self._every_s)
        return found

    def look(self) -> None:
        """Open what is current, if it is another one; what is open stays where that fails."""
        before = self._open
        try:
            found = open_current(self._blobs_for, self.location, before and before.pointer)
        except NotFound as error:
            self._why = str(error)
            return
        except (TwoshiftError, OSError, ValueError) as error:
            if str(error) != self._why:
                _logger.warning("the index %s cannot be opened: %s", self.location, error)
            self._why = str(error)
            return
        if found is not None:
            self._open, rows = found, found.generation.rows
            _logger.info("the index %s is at generation %s: %d vectors", self.location, found.generation.name, rows)

    def _follow(self, closed: Event) -> None:
        self.look()
        while not closed.wait(self._every_s):
            self.look()
