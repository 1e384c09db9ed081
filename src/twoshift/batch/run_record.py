"""One run of a job, as it is written beside the parts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import msgspec

from twoshift.batch.impact import LiveImpact
from twoshift.batch.settings import JobSettings
from twoshift.decodable import decodable

__all__ = ["RunRecord", "covered_s", "job_deadline_s"]


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
    lost_s: float = 0.0  # of workers, in shards that were started but not committed


def job_deadline_s(settings: JobSettings, before: Sequence[RunRecord], now_s: float) -> float:
    """The window is the job's: it began with the first run, whatever became of that."""
    if (due_unix_s := settings.due_unix_s) is not None:
        return now_s + due_unix_s - time.time()
    if settings.window_s is None:
        return math.inf
    passed_s = time.time() - min((run.began_unix_s for run in before), default=time.time())
    return now_s + settings.window_s - passed_s


def covered_s(runs: Sequence[RunRecord]) -> float:
    """For how long the job was worked on: runs of its pieces are at the same time."""
    total_s = until_s = 0.0
    for run in sorted(runs, key=lambda each: each.began_unix_s):
        end_s = run.began_unix_s + run.elapsed_s
        total_s += max(0.0, end_s - max(run.began_unix_s, until_s))
        until_s = max(until_s, end_s)
    return total_s
