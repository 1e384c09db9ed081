"""One look at every deployment each two seconds, for all pages that are open; and what was seen of late."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from twoshift.errors import TwoshiftError
from twoshift.serve.deployments import Deployment, Deployments
from twoshift.ui.figures import Figures, Reading, figures_of, read
from twoshift.ui.latencies import LatencyCounts

__all__ = ["DayStore", "JobCost", "Sampler", "Watched"]

_logger = logging.getLogger("twoshift.ui")
_TICK_S = 2.0
_WINDOW = 5  # ticks that a figure is over, and a point of the last hour
_POINTS = 360  # of an hour
_MINUTE = 30  # ticks
_DAY_S = 86_400.0
_BUSY = 0.01  # share of the devices' time from which a job is at work


class DayStore(Protocol):
    """Who keeps a day of minutes; calls take a while, and are made in threads."""

    def add(self, minutes: Mapping[str, Mapping[str, Any]], at_unix_s: float, forget_before_unix_s: float) -> None: ...

    def since(self, deployment: str, unix_s: float) -> Sequence[Mapping[str, Any]]: ...


class JobCost(NamedTuple):
    """What live requests of the last hour took beside a job, and without one; None: there was none."""

    beside: float | None
    alone: float | None
    beside_p50: float | None
    alone_p50: float | None


class Watched:
    """One deployment, of late."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.now = Figures(at=time.time())
        self.hour: deque[Figures] = deque(maxlen=_POINTS)
        self._window: deque[tuple[Reading, LatencyCounts]] = deque(maxlen=_WINDOW)
        self._before = read(deployment)
        self._minute_began, self._minute = self._before, list[LatencyCounts]()
        self._beside: deque[LatencyCounts] = deque(maxlen=60)  # a minute each
        self._alone: deque[LatencyCounts] = deque(maxlen=60)
        self._minute_beside, self._minute_alone = list[LatencyCounts](), list[LatencyCounts]()

    def look(self) -> None:
        """The next tick."""
        reading = read(self.deployment)
        last = self._window[-1][0] if self._window else self._before
        new = LatencyCounts.of([seconds for _, seconds in self.deployment.metrics.take_all_recent()])
        is_beside = reading.batch_s - last.batch_s > _BUSY * (reading.at_s - last.at_s)
        (self._minute_beside if is_beside else self._minute_alone).append(new)
        if len(self._window) == _WINDOW:
            self._before = self._window[0][0]
        self._window.append((reading, new))
        self._minute.append(new)
        counted = LatencyCounts.over([each for _, each in self._window])
        self.now = figures_of(self.deployment, self._before, reading, counted)

    def end_minute(self) -> Figures:
        """The last minute as one."""
        began, now = self._minute_began, self._window[-1][0]
        made = figures_of(self.deployment, began, now, LatencyCounts.over(self._minute))
        self._minute_began, self._minute = now, []
        self._beside.append(LatencyCounts.over(self._minute_beside))
        self._alone.append(LatencyCounts.over(self._minute_alone))
        self._minute_beside, self._minute_alone = [], []
        return made

    def job_cost(self) -> JobCost:
        """Of the last hour."""
        beside = LatencyCounts.over([*self._beside, *self._minute_beside])
        alone = LatencyCounts.over([*self._alone, *self._minute_alone])
        return JobCost(beside.quantile_s(0.99), alone.quantile_s(0.99), beside.quantile_s(0.5), alone.quantile_s(0.5))


class Sampler:
    """Of the loop that serves."""

    def __init__(
        self,
        deployments: Deployments,
        tell: Callable[[Mapping[str, Watched], bool], None],
        store: DayStore | None = None,
    ) -> None:
        """`tell` gets what was seen, and whether there is a new point of the last hour."""
        self._deployments, self._tell, self._store = deployments, tell, store
        self.watched: dict[str, Watched] = {}
        self._ticks = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            began_s = time.monotonic()
            try:
                await self.tick()
            except Exception:
                _logger.exception("the console could not read the state of the deployments")
            await asyncio.sleep(max(0.1, began_s + _TICK_S - time.monotonic()))

    async def tick(self) -> None:
        """Looks, remembers, and tells the pages."""
        self._ticks += 1
        known = self._deployments.all
        self.watched = {name: self._of(each) for name, each in known.items()}
        has_point = self._ticks % _WINDOW == 0
        for each in self.watched.values():
            each.look()
            if has_point:
                each.hour.append(each.now)
        self._tell(self.watched, has_point)
        if self._ticks % _MINUTE == 0:
            await self._keep({name: each.end_minute() for name, each in self.watched.items()})

    def _of(self, deployment: Deployment) -> Watched:
        before = self.watched.get(deployment.name)
        return before if before is not None and before.deployment is deployment else Watched(deployment)

    async def _keep(self, minutes: Mapping[str, Figures]) -> None:
        if self._store is not None:
            now_s, told = time.time(), {name: msgspec.to_builtins(each) for name, each in minutes.items()}
            with contextlib.suppress(TwoshiftError):  # the store has logged it; the next minute may be kept
                await asyncio.to_thread(self._store.add, told, now_s, now_s - _DAY_S)

    async def day(self, name: str) -> Sequence[Figures]:
        """Minutes of the last day; raises TryLater. Without a database, the last hour."""
        if self._store is None:
            watched = self.watched.get(name)
            return [] if watched is None else [*watched.hour]
        found = await asyncio.to_thread(self._store.since, name, time.time() - _DAY_S)
        return [msgspec.convert(each, Figures) for each in found]
