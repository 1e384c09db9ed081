"""The calls that waiting rows will make, and when these calls end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from twoshift.types import CallSize

__all__ = ["CallRoom", "JoinedCall", "PlannedCall", "ends"]


class CallRoom(NamedTuple):
    """Limits of the live rows in a call. One row always fits: a long row runs alone."""

    max_rows: int
    max_tokens: int
    seconds: float


class PlannedCall(NamedTuple):
    """A call that the waiting rows will make if no other rows arrive."""

    size: CallSize
    predicted_s: float
    deadline_s: float  # the earliest of its rows
    oldest_s: float  # when the one that waits longest arrived
    share_s: float  # of the device: less than it takes, where other lanes work beside it
    signature: int = 0  # of all its rows

    @property
    def is_whole(self) -> bool:
        """Whether the call uses all lanes; always true if there is only one lane."""
        return self.share_s == self.predicted_s


class JoinedCall(NamedTuple):
    """The last call of the plan with one more row."""

    call: PlannedCall
    opens: bool  # a call of its own, since the last one has no room
    before_s: float  # that the calls before it are predicted to take of the device
    calls: int  # before it


def ends(
    calls: Iterable[PlannedCall], free_s: Sequence[float], pace: float = 1.0, margin: float = 0.0
) -> Iterator[float]:
    """When each call ends: in the lane that is free first, one that needs all lanes once they all are.

    `free_s` has a time for each lane; calls take `pace` times as long as predicted. `margin` is the share of a
    prediction that is caution: calls in a row are not all slow, so theirs adds up as the root of their squares.
    """
    lanes = [(free, 0.0) for free in free_s]  # without the margin, and its square
    for call in calls:
        taken_s = call.predicted_s * pace
        at = 0 if call.is_whole else lanes.index(min(lanes))
        began_s, square = max(lanes) if call.is_whole else lanes[at]
        ended = (began_s + taken_s * (1.0 - margin), square + (taken_s * margin) ** 2)
        if call.is_whole:
            lanes = [ended] * len(lanes)
        else:
            lanes[at] = ended
        yield ended[0] + math.sqrt(ended[1])
