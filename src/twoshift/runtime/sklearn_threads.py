"""How many threads a scikit-learn estimator's calls use: joblib's, OpenMP's and BLAS's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from twoshift.extras import needed

__all__ = ["EstimatorThreads"]

_MOST_PARTS = 1000  # of a list in an estimator: longer ones are vocabularies and the like
_usual: dict[str, int] = {}  # library -> its threads where nobody limits them


class EstimatorThreads:
    """One number for an estimator and everything in it; the estimator's own numbers until `use` is called."""

    def __init__(self, estimator: Any, path: str) -> None:
        self._joblib = needed("joblib", "sklearn", path)
        self._with_jobs = [part for part in _parts(estimator, set()) if "n_jobs" in vars(part)]
        found = needed("threadpoolctl", "sklearn", path).ThreadpoolController().lib_controllers
        # A number that another model's call has set at this moment is not the usual one
        self._pools = [(pool, _usual.setdefault(pool.filepath, pool.num_threads)) for pool in found]
        self._threads: int | None = None

    def use(self, threads: int) -> None:
        """So many from the next call on."""
        if threads == self._threads:
            return
        for part in self._with_jobs:
            part.n_jobs = threads
        self._threads = threads

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """For one call. BLAS has one number for the process: another model's call may change it, and only the speed."""
        if self._threads is None:
            yield
            return
        others = [(pool, usual) for pool, usual in self._pools if usual != self._threads]
        for pool, _ in others:
            pool.set_num_threads(self._threads)
        try:
            with self._in_threads():
                yield
        finally:
            for pool, usual in others:
                pool.set_num_threads(usual)

    def _in_threads(self) -> contextlib.AbstractContextManager[Any]:
        """Never in processes, which some estimators would start for a second job."""
        if not self._with_jobs:
            return contextlib.nullcontext()
        return self._joblib.parallel_config(backend="threading", n_jobs=self._threads)


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """The estimators in an estimator, fitted ones among them, and itself."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if not isinstance(value, type) and hasattr(value, "get_params") and hasattr(value, "__dict__"):
        yield value
        inside = list(vars(value).values())
    elif isinstance(value, list | tuple | Mapping) and len(value) <= _MOST_PARTS:
        inside = list(value.values()) if isinstance(value, Mapping) else list(value)
    else:
        return
    for each in inside:
        yield from _parts(each, seen)
