"""Notices of clouds that a machine will be taken away: what they look like, and how much time is left."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["USUAL_S", "SpotNotice", "read_notice"]

USUAL_S = 30.0  # of GCP and Azure; AWS says when
_NONE = ("", "FALSE", "NONE")  # GCP's word for a machine that stays


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """A machine goes."""

    why: str
    left_s: float  # until then


def read_notice(text: str, now_unix_s: float) -> SpotNotice | None:
    """What a metadata server or a file says: AWS's `{"action": ..., "time": ...}`, GCP's TRUE, or any words at all.

    None where it says that the machine stays.
    """
    told = text.strip()
    if told.upper() in _NONE:
        return None
    found = _object(told)
    if found is None:
        return SpotNotice("the machine was preempted" if told.upper() == "TRUE" else told[:80], USUAL_S)
    action, left_s = str(found.get("action", "preempt")), _left_s(found.get("time"), now_unix_s)
    return SpotNotice(f"the machine will {action} in {left_s:.0f} s", left_s)


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _left_s(at: object, now_unix_s: float) -> float:
    """Until that time, as ISO 8601 has it."""
    try:
        then = datetime.datetime.fromisoformat(str(at))
    except ValueError:
        return USUAL_S
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.UTC)
    return max(0.0, then.timestamp() - now_unix_s)
