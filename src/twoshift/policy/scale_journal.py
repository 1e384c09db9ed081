"""A record of what the autoscaler saw and decided, and its replay.

A log is a header and entries, plain JSON objects, numbered from 1. A header begins a new part of it: it holds the
settings and what the policy remembered, so that every part replays by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from twoshift.errors import InvalidInput
from twoshift.policy.autoscale import (
    AutoscalePolicy,
    BatchBacklog,
    FleetScale,
    FleetState,
    ReplicaSettings,
    ReplicaState,
    Scale,
    Signal,
    WorkerSettings,
)

__all__ = ["ReplayedScale", "scale_entry", "scale_header", "scale_replay"]

_KIND, _FORMAT = "twoshift-scale", 1
_Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayedScale:
    """A decision as recorded, and as decided now."""

    number: int
    at: str  # for people
    now_s: float
    state: FleetState
    recorded: FleetScale
    decided: FleetScale

    @property
    def differs(self) -> bool:
        return self.recorded != self.decided


def scale_header(policy: AutoscalePolicy) -> _Object:
    """The first entry of a part of the log."""
    return {
        "log": _KIND,
        "format": _FORMAT,
        "settings": {
            "replicas": asdict(policy.replicas.settings),
            "workers": asdict(policy.workers.settings),
            "device_limit": policy.device_limit,
            "shared": policy.shared,
        },
        "memory": [[list(held) for held in each] for each in policy.memory],
    }


def scale_entry(number: int, at: str, now_s: float, state: FleetState, scale: FleetScale) -> _Object:
    """One observation and the decision that followed."""
    left_s = state.workers.time_left_s
    return {
        "n": number,
        "at": at,
        "now_s": now_s,
        "replicas": asdict(state.replicas),
        "workers": asdict(state.workers) | {"time_left_s": left_s if math.isfinite(left_s) else None},
        "decision": {"replicas": asdict(scale.replicas), "workers": asdict(scale.workers)},
    }


def scale_replay(entries: Iterable[Any], overrides: Mapping[str, Any] | None = None) -> Iterator[ReplayedScale]:
    """Feed what was observed to fresh policies; `overrides` are settings of replicas that it is tried with.

    Raises InvalidInput where this is no such log, or where some of it is missing.
    """
    player = _Player(overrides or {})
    for line, entry in enumerate(entries, start=1):
        try:
            replayed = player.play(entry)
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidInput) and overrides and error.field in overrides:
                raise
            if isinstance(error, InvalidInput) and not isinstance(error, _Unreadable):
                raise error.renamed(f"line {line}, {error.field}") from error
            why = error.accepted if isinstance(error, _Unreadable) else f"an entry of a decision log ({error})"
            raise InvalidInput(f"line {line}", entry, why[:500]) from error
        if replayed is not None:
            yield replayed


class _Unreadable(InvalidInput):
    def __init__(self, accepted: str) -> None:
        super().__init__("log", None, accepted)


class _Player:
    def __init__(self, overrides: Mapping[str, Any]) -> None:
        self._overrides = overrides
        self._policy: AutoscalePolicy | None = None
        self._number = 0

    def play(self, entry: Any) -> ReplayedScale | None:
        """Apply one entry; None for a header."""
        if isinstance(entry, dict) and "log" in entry:
            self._begin(cast(_Object, entry))
            return None
        if self._policy is None or not isinstance(entry, dict):
            raise _Unreadable(f"a decision log that `twoshift serve` has written; it begins with a {_KIND} header")
        found = cast(_Object, entry)
        if found["n"] != self._number + 1:
            raise _Unreadable(f"entry {self._number + 1} in this line; part of the log is missing")
        self._number += 1
        state, now_s = _read_state(found), float(found["now_s"])
        recorded = FleetScale(*(_read_scale(found["decision"][each]) for each in ("replicas", "workers")))
        decided = self._policy.decide(state, now_s)
        return ReplayedScale(self._number, str(found["at"]), now_s, state, recorded, decided)

    def _begin(self, header: _Object) -> None:
        if (header["log"], header["format"]) != (_KIND, _FORMAT):
            raise _Unreadable(f"the header of a {_KIND} log of format {_FORMAT}")
        settings, limit = header["settings"], header["settings"]["device_limit"]
        recorded = {name: value for name, value in settings["replicas"].items() if name != "allow_zero"}  # of old logs
        replicas = replace(ReplicaSettings(**recorded), **self._overrides)
        if limit is not None:
            limit = max(replicas.max_replicas, limit if "max_replicas" not in self._overrides else 0)
        self._policy = AutoscalePolicy(replicas, WorkerSettings(**settings["workers"]), limit, bool(settings["shared"]))
        self._policy.remember(*([(float(at_s), int(need)) for at_s, need in each] for each in header["memory"]))
        self._number = 0


def _read_state(entry: _Object) -> FleetState:
    workers = dict(entry["workers"])
    if workers["time_left_s"] is None:
        workers["time_left_s"] = math.inf
    return FleetState(ReplicaState(**entry["replicas"]), BatchBacklog(**workers))


def _read_scale(found: _Object) -> Scale:
    return Scale(int(found["target"]), int(found["change"]), str(found["reason"]), Signal(found["signal"]))
