"""A thread for each of OpenVINO's streams: batches are taken up as streams become free, whichever call they are of."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batch", "StreamBatches", "StreamLanes"]

Batch = dict[str, NDArray[np.int32]]
_Answer = Future[NDArray[np.float32]]


class StreamBatches:
    """Batches that are on the lanes, or wait for them."""

    def __init__(self, lanes: StreamLanes, answers: list[_Answer]) -> None:
        self._lanes, self._answers = lanes, answers

    def wait(self) -> list[NDArray[np.float32]]:
        """The answers to each batch, in order; raises what the library raised for one, once none runs any more."""
        errors = [error for answer in self._answers if (error := answer.exception()) is not None]
        if errors:
            raise errors[0]
        return [answer.result() for answer in self._answers]

    def wait_room(self) -> None:
        """Until a lane has nothing to do."""
        self._lanes.wait_room()


class StreamLanes:
    """Requests of a model that was compiled for as many streams."""

    def __init__(self, requests: Sequence[Any]) -> None:
        self._given: queue.SimpleQueue[tuple[Batch, _Answer] | None] = queue.SimpleQueue()
        self._left = 0  # batches that have no answer yet
        self._changed = threading.Condition()
        self._lanes = len(requests)
        for request in requests:
            threading.Thread(target=self._work, args=(request,), name="twoshift-stream", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a lane has something to do."""
        return self._left > 0

    def start(self, batches: Sequence[Batch]) -> StreamBatches:
        """Each goes to the first lane that is free."""
        answers: list[_Answer] = [Future() for _ in batches]
        with self._changed:
            self._left += len(batches)
        for given in zip(batches, answers, strict=True):
            self._given.put(given)
        return StreamBatches(self, answers)

    def wait_room(self) -> None:
        """Until a lane has nothing to do."""
        with self._changed:
            while self._left >= self._lanes:
                self._changed.wait()

    def close(self) -> None:
        """The threads end once they are done."""
        for _ in range(self._lanes):
            self._given.put(None)

    def _work(self, request: Any) -> None:
        while (given := self._given.get()) is not None:
            batch, answer = given
            try:
                request.start_async(batch, share_inputs=True)
                request.wait()
                answer.set_result(request.get_output_tensor(0).data.copy())  # the next batch uses the tensor again
            except BaseException as error:  # whatever it is, somebody waits for this answer
                answer.set_exception(error)
            with self._changed:
                self._left -= 1
                self._changed.notify_all()
