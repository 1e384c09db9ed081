"""Time zones, as the policies want them."""

from __future__ import annotations

import datetime
import functools
import time
from zoneinfo import ZoneInfo

from twoshift.errors import InvalidInput
from twoshift.policy.due import Offset

__all__ = ["local_time", "minute_of_week", "offset_of"]


def offset_of(zone: str) -> Offset:
    """How far its clocks are ahead of UTC; raises InvalidInput."""
    known = _zone(zone)

    def offset(at_s: int) -> int:
        found = datetime.datetime.fromtimestamp(at_s, known).utcoffset()
        return 0 if found is None else int(found.total_seconds())

    return offset


def local_time(at_s: float, zone: str) -> datetime.datetime:
    """What its clocks show then."""
    return datetime.datetime.fromtimestamp(at_s, _zone(zone))


def minute_of_week(zone: str | None) -> int:
    """What its clocks show now, from Monday 00:00; None: those of this machine. Raises InvalidInput."""
    now = datetime.datetime.now().astimezone() if zone is None else local_time(time.time(), zone)
    return 24 * 60 * now.weekday() + 60 * now.hour + now.minute


@functools.lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # none of that name, or no name at all
        raise InvalidInput("tz", name, "a time zone such as UTC or Europe/Berlin") from None
