"""The scaling signals of an online endpoint: each is declared once, as a field of ReplicaState.

A declaration says how the figure is read of a model, how those of several replicas make one, and how many replicas it
asks for. The observer, the decision log, Ray Serve's statistics and the policy follow from it. Never a utilisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from twoshift.policy.scale_values import ReplicaSettings, Signal, check_at_least
from twoshift.types import Lane

__all__ = ["Need", "ReplicaState", "SeenModel", "ceil_to", "needs", "read_levels", "together"]

_ROUNDING = 1e-9  # 3 replicas that exactly suffice are not 4


class SeenModel(Protocol):
    """What is read of a model. A language model also has `sequences()`, with `live_kv_use`; replicas in processes of
    their own have `cold_start_s`."""

    def waiting(self) -> Mapping[Lane, Any]:
        """Rows or sequences that wait in each lane, and for how long."""
        ...


@dataclass(frozen=True, slots=True)
class Need:
    """The number of replicas that one signal requests."""

    count: int
    signal: Signal
    why: str


def ceil_to(value: float, most: int) -> int:
    """Round up to whole replicas, at most this many."""
    return most if value >= most else math.ceil(value - _ROUNDING)


def _by_rate(state: ReplicaState, settings: ReplicaSettings) -> Need:
    rate, each = state.live_rows_per_s, state.replica_rows_per_s
    if each == 0:
        need = int(rate > 0 or state.waiting > 0)
        return Need(need, Signal.UNMEASURED, "requests are arriving, and the capacity of a replica is not measured yet")
    need = ceil_to(rate / (each * settings.target_load), settings.max_replicas)
    present = state.ready + state.starting
    if need > present and _can_borrow(state, settings.borrow_load):
        why = f"{rate:g} rows/s fit on {_replicas(state.ready)} if batch rows are held back"
        return Need(present, Signal.BORROW, why)
    return Need(need, Signal.RATE, f"{rate:g} rows/s need {_replicas(need)} at {each:g} rows/s each")


def _can_borrow(state: ReplicaState, borrow_load: float) -> bool:
    """Whether the live load fits the ready replicas if batch rows are held back."""
    room = borrow_load * state.ready * state.replica_rows_per_s
    return state.harvested_rows_per_s > 0 and state.live_rows_per_s <= room


def _by_waiting(state: ReplicaState, settings: ReplicaSettings) -> Need | None:
    most, ready = settings.waiting_per_replica, state.ready
    if not state.waiting:
        return None
    # a queue says that more is needed, not how much: it doubles at most
    need = min(ceil_to(state.waiting / most, settings.max_replicas), max(1, 2 * ready))
    why = "1 row is waiting" if state.waiting == 1 else f"{state.waiting} rows are waiting"
    why += f" on {_replicas(ready)}; the limit is {most} per replica" if ready else ""
    return _no_second_burst(Need(need, Signal.QUEUE, why), state)


def _by_oldest_wait(state: ReplicaState, settings: ReplicaSettings) -> Need | None:
    if state.oldest_wait_s <= settings.longest_wait_s:
        return None
    # batch work yields in milliseconds, so a wait this long is not its doing
    why = f"the oldest request has waited {state.oldest_wait_s:g} s"
    return _no_second_burst(Need(state.ready + 1, Signal.WAIT, why), state)


def _by_kv(state: ReplicaState, settings: ReplicaSettings) -> Need:
    need = ceil_to(state.ready * state.kv_saturation / settings.kv_mark, settings.max_replicas)
    why = f"live sequences hold {state.kv_saturation:.0%} of the KV cache; the limit is {settings.kv_mark:.0%}"
    return Need(need, Signal.KV, why)


def _by_jobs(state: ReplicaState, _settings: ReplicaSettings) -> Need | None:
    # one is enough: what a window needs beyond it is counted with the workers
    why = f"jobs still have {state.job_rows_left} rows to process"
    return Need(1, Signal.JOBS, why) if state.job_rows_left else None


def _floor(state: ReplicaState, settings: ReplicaSettings) -> Need:
    least, limit_s = settings.min_replicas, settings.cold_start_limit_s
    if least or limit_s is None or 0 < state.cold_start_s <= limit_s:
        return Need(least, Signal.FLOOR, f"the minimum number of replicas is {least}")
    took = f"takes {state.cold_start_s:.3g} s" if state.cold_start_s else "is not measured yet"
    return Need(1, Signal.FLOOR, f"one replica stays warm: a cold start {took}, and the objective is {limit_s:g} s")


def _by_refused(state: ReplicaState, settings: ReplicaSettings) -> Need | None:
    refused, ready = state.refused_rows_per_s, state.ready
    offered = max(state.live_rows_per_s, refused)  # one that waited for a replica is refused long after it came
    if refused <= settings.refused_share * offered:
        return None
    served = max(offered - refused, offered / 2)  # it doubles at most, as a queue does
    need = max(ready + 1, ceil_to(ready * offered / served, settings.max_replicas))
    why = f"{refused:g} of {offered:g} rows/s are refused on {_replicas(ready)}"
    return _no_second_burst(Need(need, Signal.REFUSED, why), state)


def _no_second_burst(need: Need, state: ReplicaState) -> Need:
    """Help that is on its way: the queue of a slow start keeps it, but calls for no more."""
    return replace(need, count=min(need.count, state.ready + state.starting)) if state.starting else need


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _mean_of_known(values: Sequence[float]) -> float:
    return _mean([each for each in values if each > 0])


def _highest(values: Sequence[float]) -> float:
    return max(values, default=0.0)


def _live_kv_use(model: Any) -> float:
    return model.sequences().live_kv_use if hasattr(model, "sequences") else 0.0


def _cold_start_s(model: Any) -> float:
    return getattr(model, "cold_start_s", 0.0)


@dataclass(frozen=True, slots=True)
class _Observed:
    """How a signal is measured, and how many replicas it requests."""

    together: Callable[[Sequence[float]], float]  # of what replicas tell
    read: Callable[[SeenModel], float] | None  # None: the observer knows it
    need: Callable[[ReplicaState, ReplicaSettings], Need | None] | None


def _figure(
    *,
    need: Callable[[ReplicaState, ReplicaSettings], Need | None] | None = None,
    read: Callable[[SeenModel], float] | None = None,
    together: Callable[[Sequence[float]], float] = sum,
) -> Any:
    return field(default=0, metadata={"observed": _Observed(together, read, need)})


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """State of a live endpoint; replicas that drain are in neither count."""

    ready: int
    starting: int = 0
    live_rows_per_s: float = _figure(need=_by_rate)  # offered, refused ones included
    # live requests queued, over all replicas
    waiting: int = _figure(need=_by_waiting, read=lambda model: model.waiting()[Lane.ONLINE].rows)
    oldest_wait_s: float = _figure(
        need=_by_oldest_wait, read=lambda model: model.waiting()[Lane.ONLINE].oldest_s, together=_highest
    )
    # the share of the KV cache that live sequences hold: background gives its own back
    kv_saturation: float = _figure(need=_by_kv, read=_live_kv_use, together=_mean)
    # early refusal keeps the queue short: these are the queue that did not form
    refused_rows_per_s: float = _figure(need=_by_refused)
    # measured capacity of one replica inside the SLO; 0: not measured yet
    replica_rows_per_s: float = _figure(together=_mean_of_known)
    harvested_rows_per_s: float = _figure()  # batch rows that ride on the ready replicas
    job_rows_left: int = _figure(need=_by_jobs)  # of jobs that may run now
    # what the last start of a replica took; 0: not measured yet
    cold_start_s: float = _figure(read=_cold_start_s, together=_highest)

    def __post_init__(self) -> None:
        for each in fields(self):
            check_at_least(each.name, getattr(self, each.name), 0)

    def told(self) -> dict[str, float]:
        """What a replica says of itself; its `together` is the fleet's."""
        return {name: getattr(self, name) for name, _ in _observed()}


def _observed() -> Iterator[tuple[str, _Observed]]:
    for each in fields(ReplicaState):
        if "observed" in each.metadata:
            yield each.name, each.metadata["observed"]


def read_levels(model: SeenModel) -> dict[str, float]:
    """The figures that are read of a model as it is now, by the names of their fields."""
    return {name: each.read(model) for name, each in _observed() if each.read is not None}


def together(told: Callable[[str], Iterable[float]]) -> dict[str, float]:
    """The figures of a fleet from those of its replicas, by the names of their fields."""
    return {name: each.together([*told(name)]) for name, each in _observed()}


def needs(state: ReplicaState, settings: ReplicaSettings) -> list[Need]:
    """What every signal asks for, in the order in which equal ones count."""
    floor = _floor(state, settings)
    rate, *others = (each.need(state, settings) for _, each in _observed() if each.need is not None)
    # the rate before the floor: of two that are the same it says more
    return [each for each in (rate, floor, *others) if each is not None]
