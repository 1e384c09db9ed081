"""A rollout under a virtual clock: made-up traffic to two versions, judged by the real policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.policy.rollout import RolloutPolicy, falls_in_share
from twoshift.policy.rollout_journal import RecordedRollout
from twoshift.policy.rollout_values import (
    Advance,
    Compared,
    RolloutDecision,
    RolloutSettings,
    Stage,
    Version,
    VersionAnswered,
    Warmed,
)

__all__ = ["SCENARIOS", "RolloutRun", "RolloutSpec", "RolloutStudy", "simulate_rollout", "simulate_rollouts"]

_CHUNK = 2048  # requests whose random numbers are drawn together
_LOOK_S = 1.0  # between two decisions, as in a server
_KEYS = 2**62


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """Traffic to two versions, and how they differ."""

    rate_per_s: float = 100.0
    stable_failures: float = 0.001  # share of requests
    candidate_failures: float = 0.001
    stable_ms: float = 20.0  # median latency
    slower: float = 1.0  # the candidate's latency, as a multiple of the stable version's
    tail: float = 0.4  # log standard deviation of latency
    disagreement: float = 0.0  # share of rows whose answers differ
    outage: tuple[float, float] | None = None  # from, to, in seconds: both versions fail half of the requests
    copied: float = 0.2  # share of live requests for whose copies there is idle time in the shadow
    clients: int | None = None  # None: each request has a key of its own; else so many, of which few send most
    most_requests: int = 200_000
    settings: RolloutSettings = field(default_factory=RolloutSettings)
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("rate_per_s", "stable_ms", "slower"):
            _require(name, getattr(self, name), 0 < getattr(self, name) < math.inf, "a finite number above 0")
        for name in ("stable_failures", "candidate_failures", "disagreement", "copied"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "a share from 0 to 1")
        _require("tail", self.tail, 0 <= self.tail < math.inf, "a finite number of at least 0")
        _require("most_requests", self.most_requests, self.most_requests >= 1, "at least 1")
        _require("clients", self.clients, self.clients is None or self.clients >= 1, "at least 1")


# What a user wants to know of a judge before trusting it; each is a change of a spec that is otherwise A/A.
SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "same": ("the same version as the stable one", {}),
    "broken": ("fails 20 % of its requests", {"candidate_failures": 0.2}),
    "failing": ("fails 5 % of its requests, the stable version 0.1 %", {"candidate_failures": 0.05}),
    "slow": ("has twice the latency of the stable version", {"slower": 2.0}),
    "slower": ("has 1.3 times the latency of the stable version", {"slower": 1.3}),
    "different": ("answers 10 % of the rows differently", {"disagreement": 0.1}),
    "slightly-worse": ("is 5 % slower, and fails 0.2 % of its requests", {"slower": 1.05, "candidate_failures": 0.002}),
    "both-fail": ("both versions fail 5 % of the requests, and 50 % during an outage", {
        "stable_failures": 0.05, "candidate_failures": 0.05, "outage": (30.0, 60.0)}),
    "low-traffic": ("the same version as the stable one, 1 request in 10 s, for an hour", {
        "rate_per_s": 0.1, "most_requests": 360}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RolloutRun:
    """One rollout, as far as it went."""

    stage: Stage
    share: float  # of live requests, at its end
    largest_share: float  # that the candidate had before it was promoted
    decision: RolloutDecision  # the last
    requests: int  # live ones
    exposed: int  # of them, those that the candidate answered before it was promoted
    failed: int  # of those, and not before
    copies: int  # answered in the shadow
    seconds: float


@dataclass(frozen=True, slots=True)
class RolloutStudy:
    """Several rollouts of one scenario."""

    spec: RolloutSpec
    runs: tuple[RolloutRun, ...]

    def share_of(self, stage: Stage) -> float:
        return sum(run.stage is stage for run in self.runs) / len(self.runs)

    def median(self, name: str) -> float:
        return float(np.median([getattr(run, name) for run in self.runs]))


def simulate_rollouts(spec: RolloutSpec, runs: int, progress: Callable[[float], None] = lambda _: None) -> RolloutStudy:
    """The same with other seeds."""
    done = list[RolloutRun]()
    for number in range(runs):
        done.append(simulate_rollout(spec, seed=spec.seed + number))
        progress((number + 1) / runs)
    return RolloutStudy(spec, tuple(done))


def simulate_rollout(
    spec: RolloutSpec, *, seed: int | None = None, sink: Callable[[list[Any]], None] | None = None
) -> RolloutRun:
    """One rollout, to its end or to the end of the requests; `sink` is told every event and decision."""
    policy = (
        RolloutPolicy(spec.settings, 0.0) if sink is None else RecordedRollout(spec.settings, 0.0, sink, events=True)
    )
    return _Traffic(spec, policy, np.random.default_rng(spec.seed if seed is None else seed)).run()


@dataclass(frozen=True, slots=True)
class _Request:
    at_s: float
    key: int
    luck: float  # below the share of failures, it fails
    stable_s: float
    candidate_s: float
    copied: float
    differs: float


class _Traffic:
    def __init__(self, spec: RolloutSpec, policy: RolloutPolicy, rng: np.random.Generator) -> None:
        self._spec, self._policy, self._rng = spec, policy, rng
        self._exposed = self._failed = self._copies = self._requests = 0
        self._largest_share = 0.0
        self._look_s = 0.0
        self._clients = rng.integers(0, _KEYS, spec.clients or 1)

    def run(self) -> RolloutRun:
        policy, now_s = self._policy, 0.0
        policy.observe(Warmed(), now_s)
        decision: RolloutDecision = policy.decide(now_s)
        self._note(decision)
        for request in self._arrivals():
            now_s = request.at_s
            if policy.is_urgent or now_s >= self._look_s + _LOOK_S:
                decision, self._look_s = policy.decide(now_s), now_s
                self._note(decision)
                if policy.stage.is_final:
                    break
            self._requests += 1
            self._answer(request)
        return RolloutRun(
            policy.stage, policy.share, self._largest_share, decision,
            self._requests, self._exposed, self._failed, self._copies, now_s,
        )  # fmt: skip

    def _note(self, decision: RolloutDecision) -> None:
        if isinstance(decision, Advance):
            self._largest_share = decision.share

    def _answer(self, request: _Request) -> None:
        spec, policy, at_s = self._spec, self._policy, request.at_s
        by_candidate = falls_in_share(request.key, policy.share)
        is_out = spec.outage is not None and spec.outage[0] <= at_s < spec.outage[1]
        failures = 0.5 if is_out else spec.candidate_failures if by_candidate else spec.stable_failures
        failed = request.luck < failures
        if by_candidate:
            self._exposed += 1
            self._failed += failed
            policy.observe(VersionAnswered(Version.CANDIDATE, request.candidate_s, failed), at_s)
            return
        policy.observe(VersionAnswered(Version.STABLE, request.stable_s, failed), at_s)
        if policy.wants_copies and not failed and request.copied < spec.copied:
            self._copies += 1
            fails = request.differs > 1 - spec.candidate_failures
            differs = int(request.differs < spec.disagreement)
            policy.observe(Compared(1, differs, request.candidate_s, request.stable_s, fails), at_s)

    def _arrivals(self) -> Iterator[_Request]:
        spec, rng, now_s = self._spec, self._rng, 0.0
        left = spec.most_requests
        while left > 0:
            count = min(_CHUNK, left)
            left -= count
            times_s = now_s + np.cumsum(rng.exponential(1 / spec.rate_per_s, count))
            now_s = float(times_s[-1])
            yield from map(_Request, times_s.tolist(), *self._draws(count))

    def _draws(self, count: int) -> list[list[Any]]:
        spec, rng = self._spec, self._rng
        keys = rng.integers(0, _KEYS, count) if spec.clients is None else self._client_keys(count)
        stable_s, candidate_s = spec.stable_ms / 1e3 * np.exp(spec.tail * rng.standard_normal((2, count)))
        luck, copied, differs = rng.random((3, count))
        return [each.tolist() for each in (keys, luck, stable_s, candidate_s * spec.slower, copied, differs)]

    def _client_keys(self, count: int) -> NDArray[np.int64]:
        """The busiest client sends as much as the second and third together, and so on (Zipf)."""
        ranks = 1 / np.arange(1, (self._spec.clients or 1) + 1)
        return self._rng.choice(self._clients, count, p=ranks / ranks.sum())


def _require(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
