"""Replicas under a virtual clock: they take their time to start, may fail, and do what the reconciler says."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from twoshift.policy.reconcile import ReconcilePolicy
from twoshift.policy.reconcile_values import (
    Action,
    Drain,
    Failure,
    Kill,
    Observed,
    Replica,
    ReplicaStage,
    Shift,
    Start,
    Stop,
    Wait,
    Wanted,
)

__all__ = ["SimFleet"]

_FAILURES = 32  # that are remembered


class SimFleet:
    """What a supervisor does, without processes."""

    def __init__(
        self,
        start_s: Callable[[str], float],  # how long a replica of a version takes to be ready
        replicas: Iterable[Replica] = (),
        shares: Mapping[str, float] | None = None,
        policy: ReconcilePolicy | None = None,
    ) -> None:
        self._start_s, self._policy = start_s, policy or ReconcilePolicy()
        self.replicas = {each.number: each for each in replicas}
        self.shares = shares
        self.failures: deque[Failure] = deque(maxlen=_FAILURES)
        self._numbers = itertools.count(max(self.replicas, default=-1) + 1)
        self._ready_s = {
            each.number: each.since_s + start_s(each.version)
            for each in self.replicas.values()
            if each.stage is ReplicaStage.STARTING
        }

    def count(self, stage: ReplicaStage) -> int:
        """Replicas in that stage."""
        return sum(each.stage is stage for each in self.replicas.values())

    def settle(self, wanted: Wanted, now_s: float) -> None:
        """Look and act until there is nothing more to do at this moment."""
        while not isinstance(self.step(wanted, now_s)[0], Wait):
            pass

    def step(self, wanted: Wanted, now_s: float) -> list[Action]:
        """Look once and act."""
        self.advance(now_s)
        actions = self._policy.decide(wanted, self.observed, now_s)
        for action in actions:
            self._act(action, now_s)
        return actions

    def advance(self, now_s: float) -> None:
        """Replicas whose start is over are ready."""
        for number in [number for number, ready_s in self._ready_s.items() if ready_s <= now_s]:
            ready_s = self._ready_s.pop(number)
            self._move(number, ReplicaStage.READY, ready_s)
            self.replicas[number] = replace(self.replicas[number], ready_s=ready_s)

    def crash(self, number: int, now_s: float, why: str = "killed by SIGKILL") -> None:
        """It ends by itself; one that was on its way out has not failed."""
        gone = self.replicas.pop(number)
        self._ready_s.pop(number, None)
        if gone.is_live:
            self.failures.append(Failure(gone.version, now_s, gone.ready_s, why))

    @property
    def observed(self) -> Observed:
        return Observed(tuple(self.replicas.values()), tuple(self.failures), self.shares)

    def _act(self, action: Action, now_s: float) -> None:
        match action:
            case Start(version):
                number = next(self._numbers)
                self.replicas[number] = Replica(number, version, ReplicaStage.STARTING, now_s)
                self._ready_s[number] = now_s + self._start_s(version)
            case Drain(number):
                self._ready_s.pop(number, None)
                self._move(number, ReplicaStage.DRAINING, now_s)
            case Stop(number):
                self._move(number, ReplicaStage.STOPPING, now_s)
                self.crash(number, now_s)
            case Kill(number, why):
                self.crash(number, now_s, why)
            case Shift(shares):
                self.shares = shares
            case Wait():
                pass
            case _:
                assert_never(action)

    def _move(self, number: int, stage: ReplicaStage, now_s: float) -> None:
        self.replicas[number] = replace(self.replicas[number], stage=stage, since_s=now_s)
