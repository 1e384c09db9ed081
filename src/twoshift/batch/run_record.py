"""One run of a job, as it is written beside the parts."""

from __future__ import annotations

import msgspec

from twoshift.batch.impact import LiveImpact
from twoshift.decodable import decodable

__all__ = ["RunRecord"]


@decodable
class RunRecord(msgspec.Struct, frozen=True):
    """One run of a job: what it took, whether it came to its end or not."""

    began_unix_s: float
    elapsed_s: float
    workers: int  # at its end
    worker_s: float  # summed over workers, from their start
    rows: int  # committed
    errors: int  # of them
    busy_s: float  # of the devices
    tokens: int
    padding_tokens: int
    failed_calls: int  # split and tried again: out of memory, or a bad row in them
    out_of_memory: int  # of them
    max_tokens: int  # of a call, at its lowest; 0: not known
    retries: int
    speculated: int
    deaths: tuple[str, ...]
    failures: dict[str, int]  # of shards, by message
    timeline: tuple[tuple[float, int, float], ...]  # seconds, rows, busy seconds
    usd: float | None
    harvested_s: float = 0.0  # of the devices' busy time: on replicas that serve
    riding_s: float = 0.0  # of that: in calls that live rows were in
    live: LiveImpact | None = None  # what live requests noticed
    preparers: int = 0  # processes that prepared rows, at most at the same time
    output_s: float = 0.0  # of the busy time: for what a language model generated, and not for its prompts
    scaling: tuple[tuple[float, int, str], ...] = ()  # seconds, workers from then on, and why
    notices: tuple[str, ...] = ()  # that a worker's machine would be taken away
    marks: tuple[tuple[float, str], ...] = ()  # seconds, and what happened: deaths and notices
    lost_s: float = 0.0  # of workers, in shards that were begun and not committed
