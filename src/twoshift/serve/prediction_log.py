"""Predictions on their way to the database: nobody who predicts waits for it."""

from __future__ import annotations

import logging
import math
from collections import deque
from copy import copy
from threading import Event

from twoshift.closable_thread import ClosableThread
from twoshift.errors import Disabled, TwoshiftError
from twoshift.prediction_ports import Prediction, PredictionStore

__all__ = ["NoPredictions", "PredictionLog"]

_logger = logging.getLogger("twoshift.predictions")
_MOST = 1000  # that wait for the database: then the oldest go
_WRITE_S, _CLOSE_S = 2.0, 2.0


class PredictionLog:
    """Any thread may call it; one of its own writes."""

    def __init__(self, store: PredictionStore) -> None:
        self._store = store
        self._new: deque[Prediction] = deque(maxlen=_MOST)
        self._thread = ClosableThread(self._keep, "twoshift-predictions", _CLOSE_S)

    def start(self) -> None:
        """Write from now on."""
        self._thread.start()

    def close(self) -> None:
        """Write what is left, if the database answers."""
        self._thread.close()

    def add(self, scored: Prediction) -> None:
        """What cannot be compared is let go."""
        if math.isfinite(scored.predicted) and math.isfinite(scored.measured):
            self._new.append(scored)

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]:
        """The newest first; raises TryLater."""
        return self._store.list(limit, kind, owner)

    def write(self) -> None:
        """What has come since; raises TryLater, and then it is written the next time."""
        found = [self._new.popleft() for _ in range(len(self._new))]
        try:
            self._store.add(found)
        except TwoshiftError:
            self._new.extendleft(reversed(found))
            raise

    def _keep(self, closed: Event) -> None:
        is_last = False
        while not is_last:
            is_last = closed.wait(_WRITE_S)
            try:
                self.write()
            except TwoshiftError:
                pass  # the database does not answer: the next time
            except Exception:
                _logger.exception("some predictions could not be stored")


class NoPredictions:
    """Nothing is kept without a database."""

    def __init__(self, why: str | TwoshiftError) -> None:
        self._why = why

    def start(self) -> None:
        """There is nothing to write."""

    def close(self) -> None:
        """There is nothing to write."""

    def add(self, scored: Prediction) -> None:
        """It is let go."""

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]:
        """Says why there are none."""
        raise Disabled("predictions", self._why) if isinstance(self._why, str) else copy(self._why)
