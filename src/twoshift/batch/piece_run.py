"""One process of a job in pieces: others hear of it; it has a share of the plan, and may be the one that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable

from twoshift.batch.piece_share import BEATS, PieceShare
from twoshift.batch.plan import Plan
from twoshift.batch.presence import Presence
from twoshift.batch.settings import JobSettings
from twoshift.errors import Inapplicable
from twoshift.ports import Blobs

__all__ = ["PieceRun"]

_AGAIN_S = 1.0  # between looks at whether another process has ended the job


class PieceRun:
    """What a run has besides, where it is one of several."""

    def __init__(self, settings: JobSettings, output: Blobs) -> None:
        assert settings.piece is not None  # noqa: S101 - it is a whole job otherwise
        self._piece, self._output = settings.piece, output
        self._presence = Presence(output, settings.output, settings.piece, settings.piece_seconds / BEATS)
        self._share: PieceShare | None = None

    @property
    def name(self) -> str:
        """No other run has it."""
        return self._presence.name

    def check(self, fresh: bool, retry_errors: str | None) -> None:
        """Raises InvalidInput for what a piece cannot be asked."""
        if fresh:
            raise Inapplicable(
                "piece",
                self._piece,
                "with --fresh: omit --fresh; the first process starts the job, and the other processes join this job",
            )
        if retry_errors is not None:
            why = "with --retry-errors: to retry the errors, run the same command without --piece"
            raise Inapplicable("piece", self._piece, why)

    def begin(self, plan: Plan) -> PieceShare:
        """Its share; from now on the others hear of it."""
        self._presence.start()
        self._share = PieceShare(plan, self._output, self._presence)
        return self._share

    def may_end(
        self, is_ended: Callable[[], bool], check_interrupted: Callable[[], None], tell: Callable[[str], None]
    ) -> bool:
        """Every part is there. Whether this process writes the end; if not, another one has: this one has waited."""
        assert self._share is not None  # noqa: S101 - it has begun
        while not is_ended():
            if self._share.can_end():
                return not is_ended()  # another may have, just before
            tell("Waiting for the process that writes the manifest and the report")
            check_interrupted()
            time.sleep(_AGAIN_S)
        return False

    def close(self) -> None:
        """The others need not wait for it."""
        self._presence.close()
