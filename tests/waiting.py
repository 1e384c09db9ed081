"""Waiting for a condition; the limit is against hangs, and no speed is asserted by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["WAIT_S", "until", "until_async"]

WAIT_S = 240.0
_LOOK_S = 0.01
_SELDOM_S = 0.05  # in a long wait: each look takes something from what is waited for


def until(holds: Callable[[], object], wait_s: float = WAIT_S, what: object = "") -> None:
    """Look until it holds; `what` is said where it never does."""
    end_s, pause_s = time.monotonic() + wait_s, _LOOK_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(pause_s)
        pause_s = min(1.1 * pause_s, _SELDOM_S)


async def until_async(holds: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """The same on a loop that others use, too."""
    end_s = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < end_s
        await asyncio.sleep(_LOOK_S)
