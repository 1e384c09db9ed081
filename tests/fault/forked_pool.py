"""The worker processes of a job as forks of one process that has imported what they need.

Each costs a tenth of a second where the program's own cost a second. Nothing else about them is another: the pool, its
pipes and the worker are those of the program.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Mapping
from typing import Any

from twoshift.batch.device import WorkDevice
from twoshift.batch.pool import LocalPool
from twoshift.batch.settings import JobSettings
from twoshift.ports import Blobs

__all__ = ["ForkedPool"]

_NEEDED = ["twoshift.batch.worker", "twoshift.wiring.job_workers", "pyarrow.compute", "pyarrow.parquet"]
_THREADS = "RAYON_NUM_THREADS"  # a worker sets it for itself


class ForkedPool(LocalPool):
    """A job's pool with such processes, which know the environment that the pool was made in."""

    def __init__(
        self,
        settings: JobSettings,
        threads: int,
        load: Callable[[JobSettings], WorkDevice],
        blobs_for: Callable[[str], Blobs],
    ) -> None:
        made_in = dict(os.environ)
        super().__init__(
            settings, threads, functools.partial(_in, made_in, load), functools.partial(_in, made_in, blobs_for)
        )
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_NEEDED)


def _in(environment: Mapping[str, str], call: Callable[[Any], Any], given: Any) -> Any:
    for name in os.environ.keys() - environment.keys() - {_THREADS}:
        del os.environ[name]
    os.environ.update(environment)
    return call(given)
