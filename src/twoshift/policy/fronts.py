"""Number of front-end processes that read, prepare and answer requests."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["FIRST_REQUEST_S", "LEAST_CORES", "front_for", "fronts_wanted"]

LEAST_CORES = 8  # from which on a front in a process of its own is worth its hop
FIRST_REQUEST_S = 2e-4  # of the host, that a request is taken to cost until some were measured
_BUSY = 0.6  # of a front's time: what is left keeps requests from waiting for one another
_OTHER_CORES = 3  # for a replica, jobs and the main process
_UNEVEN, _UNEVEN_SHARE = 2, 0.1  # connections more than another front has, from which on it gets a new one
_PER_REPLICA = 5  # each costs a replica a read and a write for a call: with more, its interpreter is full before theirs


def fronts_wanted(requests_per_s: float, request_s: float, cores: int, replicas: int = 1) -> int:
    """Number of front-end processes for this request rate; `request_s` is the host time of a request (0: unknown)."""
    busy = requests_per_s * (request_s or FIRST_REQUEST_S)
    return max(1, min(math.ceil(busy / _BUSY), cores - _OTHER_CORES, _PER_REPLICA * replicas))


def front_for(connections: Sequence[int], own: int) -> int | None:
    """Which front shall have a connection that front `own` has accepted, by how many each has; None: itself.

    The system deals connections out by chance, and few of them unevenly.
    """
    fewest = min(range(len(connections)), key=connections.__getitem__)
    most = connections[fewest] + max(_UNEVEN, _UNEVEN_SHARE * connections[fewest])
    return fewest if connections[own] >= most else None
