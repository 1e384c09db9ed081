"""What a preparing process does, wherever it runs: shards in, parts out, rows to the worker's engine and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import assert_never

from twoshift.batch.messages import GiveUp, Score
from twoshift.batch.preparing.line import BlockMemory
from twoshift.batch.preparing.messages import Answered, FromPreparer, Given, ToPreparer, Wrote
from twoshift.batch.preparing.remote_engine import RemoteEngine
from twoshift.batch.scorer import ShardScorer
from twoshift.batch.scoring import ScoringThreads

__all__ = ["ShardPreparer"]


class ShardPreparer:
    """Handles messages one at a time; answers go to `send`, from several threads, and the end to `ended`."""

    def __init__(
        self, given: Given, memory: BlockMemory, send: Callable[[FromPreparer], None], ended: Callable[[], None]
    ) -> None:
        self._engine = RemoteEngine(given, memory, send)
        scorer = ShardScorer(
            self._engine, given.plan, given.blobs_for, given.worker, wrote=lambda rows: send(Wrote(rows))
        )  # fmt: skip
        self._scoring = ScoringThreads(scorer, send)
        self._ended = ended
        self._ending: threading.Thread | None = None

    def handle(self, message: ToPreparer | None) -> None:
        """Do what it says, or begin to; None: end, once all is given up."""
        match message:
            case Score(lease, shard):
                self._scoring.begin(lease, shard)
            case GiveUp(lease):
                self._scoring.give_up(lease)
            case Answered():
                self._engine.answered(message)
            case None:
                self._ending = self._ending or self._end_once_done()
            case _:
                assert_never(message)

    def _end_once_done(self) -> threading.Thread:
        """Beside us: what is given up waits for its last answers."""

        def end() -> None:
            self._scoring.close()
            self._ended()

        ending = threading.Thread(target=end, name="twoshift-end", daemon=True)
        ending.start()
        return ending
