"""The one loop that tries something again; how long it waits is the policy's."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from twoshift.policy.retries import RetryPolicy

__all__ = ["retried"]

T = TypeVar("T")


def retried(
    work: Callable[[], T],
    policy: RetryPolicy,
    may_retry: Callable[[Exception, float], bool],
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """What `work` returns; raises its last error.

    `may_retry` is called with an error and the age that the next attempt would have. A `wait` that returns True was
    interrupted: there is no other attempt.
    """
    began_s, attempts = time.monotonic(), 0
    while True:
        try:
            return work()
        except Exception as error:
            attempts, age_s = attempts + 1, time.monotonic() - began_s
            pause_s = policy.pause_s(attempts, age_s, random.random())  # noqa: S311 - only spreads attempts
            if pause_s is None or not may_retry(error, age_s + pause_s) or wait(pause_s):
                raise
