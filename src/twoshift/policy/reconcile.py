"""Compares the wanted state with the observed state and returns actions.

Stateless, so a missed event heals at the next look.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    VersionWanted,
    Wait,
    Wanted,
)

__all__ = ["ReconcilePolicy", "ReconcileSettings"]

_ROUNDING = 1e-9  # shares are floats


@dataclass(frozen=True, slots=True)
class ReconcileSettings:
    """Delays and limits of the reconciler."""

    first_wait_s: float = 0.5  # before a replica is started again; doubled with each failure
    longest_wait_s: float = 30.0
    lasting_s: float = 30.0  # a replica that was ready for longer ends a series of failures
    failed_starts: int = 5  # in a row: the next would fail, too, and is tried only now and then
    first_alone: bool = True  # the first replica measures, the others read what it has stored
    start_s: float = 1800.0  # for a model to be loaded and measured
    drain_s: float = 60.0  # for the requests of a replica that goes
    stop_s: float = 5.0  # for its model to be closed


@dataclass(frozen=True, slots=True)
class _Seen:
    """Replicas sorted once: a simulated fleet has thousands."""

    live: Mapping[str, list[Replica]]  # by version, starting or ready
    serving: Counter[str]
    others: Sequence[Replica]  # that do not serve

    @classmethod
    def of(cls, replicas: Iterable[Replica]) -> _Seen:
        live, serving, others = defaultdict[str, list[Replica]](list), Counter[str](), list[Replica]()
        for each in replicas:
            if each.serves:
                serving[each.version] += 1
                live[each.version].append(each)
                continue
            others.append(each)
            if each.is_live:
                live[each.version].append(each)
        return cls(live, serving, others)


class ReconcilePolicy:
    """Next actions for the replicas of a deployment."""

    def __init__(self, settings: ReconcileSettings | None = None) -> None:
        self.settings = settings or ReconcileSettings()

    def decide(self, wanted: Wanted, observed: Observed, now_s: float) -> list[Action]:
        """The actions to take now; a single Wait if there is nothing to do."""
        seen = _Seen.of(observed.replicas)
        ending = [action for each in seen.others if (action := self._ending(each, now_s)) is not None]
        killed = {each.number for each in ending if isinstance(each, Kill)}
        shares = _next_shares(wanted, observed.shares, seen.serving)
        kept = _kept(wanted, observed.shares or {}) | _kept(wanted, shares)  # of both the greater
        drains = _drains(wanted, seen, kept, killed)
        starts, start_s = self._starts(wanted, observed, seen, _room(wanted, seen, shares), now_s)
        actions = [*ending, *_shift(observed.shares, shares), *drains, *starts]
        return actions or [Wait(min([start_s, *self._patience_ends_s(seen.others)]))]

    def failed_starts(self, each: VersionWanted, observed: Observed) -> int:
        """How many starts have failed in a row: since one was ready, or since the number wanted changed."""
        ready_s = [one.ready_s for one in (*observed.replicas, *observed.failures) if one.version == each.version]
        since_s = max((at_s for at_s in ready_s if at_s is not None), default=-math.inf)
        failed = (one for one in observed.failures if one.version == each.version and one.ready_s is None)
        return sum(one.at_s > max(since_s, each.asked_s) for one in failed)

    def gave_up(self, each: VersionWanted, observed: Observed) -> str:
        """Why its replicas do not start, once so many have failed that callers should know; empty: they may."""
        failed = self.failed_starts(each, observed)
        if failed < self.settings.failed_starts:
            return ""
        why = next(one.why for one in reversed(observed.failures) if one.version == each.version)
        return f"{failed} replicas in a row failed to start: {why}"

    def wait_s(self, version: str, observed: Observed, now_s: float) -> float:
        """How long the next start waits after the last failure."""
        failures = self._recent_failures(version, observed, now_s)
        if len(failures) < 2:  # the first is replaced at once
            return 0.0
        return min(self.settings.longest_wait_s, self.settings.first_wait_s * 2 ** min(len(failures) - 1, 10))

    def _recent_failures(self, version: str, observed: Observed, now_s: float) -> list[Failure]:
        """Newest first, up to one that had lasted: neither it nor one that lasts now has to do with those before it."""
        ours = [each.ready_s for each in observed.replicas if each.version == version and each.ready_s is not None]
        proved_s = max((at_s for at_s in ours if now_s - at_s > self.settings.lasting_s), default=-math.inf)
        found: list[Failure] = []
        for each in reversed(observed.failures):
            if each.at_s <= proved_s:
                break
            if each.version == version:
                found.append(each)
                if each.ready_s is not None and each.at_s - each.ready_s > self.settings.lasting_s:
                    break
        return found

    def _ending(self, replica: Replica, now_s: float) -> Action | None:
        """The next step of a replica that has to go."""
        for_s = now_s - replica.since_s
        if replica.fault:
            return Kill(replica.number, replica.fault)  # it answers nobody: first its device is freed
        match replica.stage:
            case ReplicaStage.STARTING if for_s >= self.settings.start_s:
                return Kill(replica.number, f"the replica was not ready within {self.settings.start_s:g} s")
            case ReplicaStage.DRAINING if not replica.load or for_s >= self.settings.drain_s:
                return Stop(replica.number)
            case ReplicaStage.STOPPING if for_s >= self.settings.stop_s:
                return Kill(replica.number, "")
            case _:
                return None

    def _patience_ends_s(self, replicas: Iterable[Replica]) -> list[float]:
        patience_s = {
            ReplicaStage.STARTING: self.settings.start_s,
            ReplicaStage.DRAINING: self.settings.drain_s,
            ReplicaStage.STOPPING: self.settings.stop_s,
        }
        return [each.since_s + patience_s[each.stage] for each in replicas if each.stage in patience_s]

    def _starts(
        self, wanted: Wanted, observed: Observed, seen: _Seen, room: int, now_s: float
    ) -> tuple[list[Action], float]:
        """What to start now, and when to look again."""
        starts, again_s = list[Action](), math.inf
        for each in wanted.versions:
            live = seen.live.get(each.version, ())
            missing = min(each.replicas - len(live), room)
            if missing <= 0:
                continue
            failures = self._recent_failures(each.version, observed, now_s)
            starting = sum(one.stage is ReplicaStage.STARTING for one in live)
            first = self.settings.first_alone and starting == len(live)
            if first or len(failures) > 1:  # what fails is not tried by many at once
                missing = min(missing, 1 - starting)
            start_s = failures[0].at_s + self.wait_s(each.version, observed, now_s) if failures else -math.inf
            if missing > 0 and now_s < start_s:
                again_s = min(again_s, start_s)
                continue
            starts += [Start(each.version)] * missing
            room -= max(0, missing)
        return starts, again_s


def _kept(wanted: Wanted, shares: Mapping[str, float]) -> Counter[str]:
    """How many replicas each version keeps: as many as are wanted, or as carry the traffic that it has to give away."""
    kept = Counter({each.version: each.replicas for each in wanted.versions})
    goal = {each.version: each.share for each in wanted.versions}
    for version, share in shares.items():
        if share > goal.get(version, 0.0) + _ROUNDING:
            kept[version] = max(kept[version], math.ceil(share * wanted.replicas - _ROUNDING))
    return kept


def _room(wanted: Wanted, seen: _Seen, shares: Mapping[str, float]) -> int:
    """Replicas that may start: the surge beyond the wanted number, or beyond those that still carry traffic."""
    live = Counter({version: len(replicas) for version, replicas in seen.live.items()})
    goal = Counter({each.version: each.replicas for each in wanted.versions})
    kept = _kept(wanted, shares)
    held = sum(min((live if kept[each] > goal[each] else seen.serving)[each], kept[each]) for each in kept)
    return max(wanted.replicas, held) + wanted.surge - live.total()


def _drains(wanted: Wanted, seen: _Seen, kept: Counter[str], killed: set[int]) -> list[Action]:
    """Surplus replicas: those that have not started first, then those with the least work to finish."""
    spare = seen.serving.total() - wanted.floor
    found: list[Action] = []
    for version, live in seen.live.items():
        if len(live) <= kept[version]:
            continue
        going = [each for each in live if each.number not in killed]
        order = sorted(going, key=lambda each: (each.serves, each.load, -each.number))
        surplus = order[: max(0, len(going) - kept[version])]
        serving = [each for each in surplus if each.serves][: max(0, spare)]
        spare -= len(serving)
        found += [Drain(each.number) for each in (*(each for each in surplus if not each.serves), *serving)]
    return found


def _shift(now: Mapping[str, float] | None, soon: Mapping[str, float]) -> list[Action]:
    if now is None or all(abs(now.get(each, 0.0) - soon.get(each, 0.0)) < _ROUNDING for each in {*now, *soon}):
        return []
    return [Shift(soon)]


def _next_shares(wanted: Wanted, shares: Mapping[str, float] | None, ready: Counter[str]) -> dict[str, float]:
    """Traffic follows the replicas that are ready: a version's share grows as they come, and is taken from the rest."""
    if not ready or shares is None:
        return dict(shares or {})
    goal = {each.version: each for each in wanted.versions}
    share = {version: goal[version].share if version in goal else 0.0 for version in ready}
    # who has nothing ready can have no traffic
    now = _normal({each: shares.get(each, 0.0) for each in ready}) or _normal(share) or _normal(ready)
    found = dict(share)
    for version in ready:
        if share[version] > now[version]:
            reached = min(1.0, ready[version] / max(1, goal[version].replicas))
            found[version] = max(now[version], share[version] * reached)
    given_up = {version: now[version] - share[version] for version in ready if now[version] > share[version]}
    left, total = 1.0 - sum(found.values()), sum(given_up.values())
    for version, part in given_up.items():
        found[version] += left * part / total
    return {version: value for version, value in found.items() if value > _ROUNDING}


def _normal(weights: Mapping[str, float]) -> dict[str, float]:
    """Shares scaled so that their sum is 1; empty if all are 0."""
    total = sum(weights.values())
    return {each: weight / total for each, weight in weights.items()} if total > 0 else {}
