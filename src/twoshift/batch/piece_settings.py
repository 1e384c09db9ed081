"""Settings of a job in pieces: one process per piece, without a coordinator."""

from __future__ import annotations

import re
from typing import Annotated, Any

from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.values import duration, text

__all__ = ["LEAST_TIMEOUT_S", "PieceName", "PieceTimeout", "check_piece", "piece_of", "pieces_of"]

LEAST_TIMEOUT_S = 2.0  # a few times as long as a bucket takes to answer
_MOST_PIECES = 10_000
_FORM = re.compile(r"(\d{1,9})/(\d{1,9})")
_PLAIN = "K/N, which is piece K of N pieces; K counts from 0, so 16 pieces are 0/16 to 15/16"

PieceName = Annotated[
    str | None,
    setting(
        "Run one piece of a job that N processes share without a coordinator: K/N. For 16 processes: 0/16 to 15/16.",
        text("K/N"),
        more="See [a job in pieces](jobs.md#a-job-in-pieces).",
    ),
]
PieceTimeout = Annotated[
    float,
    setting(
        "With --piece: take over the shards of another process that has sent no heartbeat for this time.",
        duration(),
        "--piece-timeout",
        shown="60s",
    ),
]


def piece_of(piece: str) -> tuple[int, int]:
    """Number of the piece and number of pieces; raises InvalidInput."""
    found = _FORM.fullmatch(piece.strip())
    if found is None:
        unset = "; the shell variable before the slash is not set" if piece.strip().startswith("/") else ""
        raise InvalidInput("piece", piece, f"{_PLAIN}{unset}")
    number, of = int(found[1]), int(found[2])
    if not 1 <= of <= _MOST_PIECES:
        raise InvalidInput("piece", piece, f"K/N with N from 1 to {_MOST_PIECES:,}")
    if number >= of:
        raise InvalidInput(
            "piece",
            piece,
            f"0/{of} to {of - 1}/{of}: pieces are numbered from 0, like JOB_COMPLETION_INDEX of Kubernetes",
        )
    return number, of


def pieces_of(piece: str | None) -> int | None:
    """Number of pieces of a job; None if it is not divided."""
    return None if piece is None else piece_of(piece)[1]


def check_piece(settings: Any) -> None:
    """Raises InvalidInput for settings that a job in pieces cannot have."""
    timeout_s = settings.piece_seconds
    if settings.piece is None:
        return
    piece_of(settings.piece)
    if timeout_s < LEAST_TIMEOUT_S:
        raise InvalidInput("piece_seconds", timeout_s, f"at least {LEAST_TIMEOUT_S:g} seconds")
    refused = {
        "query": "with --query: write the result of the query to files first, and run the pieces over these files",
        "into": "with --into: run `twoshift load` when the job is done",
        "against": "with --against: compare the models in a job without --piece",
        "endpoint": "for a batch of requests",
    }
    for name, why in refused.items():
        if getattr(settings, name) is not None:
            raise Inapplicable("piece", settings.piece, why)
    if settings.engine != "local":
        raise Inapplicable("piece", settings.piece, "with --engine ray: on Ray, one job has workers on all machines")
