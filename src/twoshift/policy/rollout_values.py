"""Values of a rollout: settings, events, decisions, and the state that survives a restart."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from twoshift.errors import InvalidInput

__all__ = [
    "Advance",
    "Compared",
    "Comparison",
    "Crashed",
    "Evidence",
    "Keep",
    "Paused",
    "Promote",
    "PromoteAsked",
    "Resumed",
    "RollBack",
    "RollBackAsked",
    "RolloutDecision",
    "RolloutSettings",
    "RolloutState",
    "Stage",
    "Version",
    "VersionAnswered",
    "Warmed",
]


class Version(enum.StrEnum):
    """The version that gave an answer."""

    STABLE = "stable"
    CANDIDATE = "candidate"


class Stage(enum.StrEnum):
    """Stage of the candidate; the last two are final."""

    LOADING = "loading"
    SHADOW = "shadow"  # the candidate answers copies of live requests, which no client sees
    LADDER = "ladder"  # the candidate answers a share of the live requests
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"

    @property
    def is_final(self) -> bool:
        return self in (Stage.PROMOTED, Stage.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Warmed:
    """The candidate is loaded and warm, and may take traffic."""


@dataclass(frozen=True, slots=True)
class VersionAnswered:
    """A version answered a live request, or failed to; client errors (4xx) are not failures."""

    version: Version
    latency_s: float
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """The candidate answered a copy of one live request: one event for each request, however many rows it has.

    Times are of the same kind for both, such as device seconds, or None where one is not known.
    """

    rows: int
    disagreed: int
    candidate_s: float | None = None
    stable_s: float | None = None
    failed: bool = False  # the candidate failed, but the stable version had answered

    def __post_init__(self) -> None:
        _check("rows", self.rows, self.rows >= 1, "at least 1")
        _check(
            "disagreed",
            self.disagreed,
            0 <= self.disagreed <= self.rows,
            f"a number from 0 to {self.rows}, the number of rows",
        )


@dataclass(frozen=True, slots=True)
class Crashed:
    """A replica of a version died."""

    version: Version
    why: str = "the process died"


@dataclass(frozen=True, slots=True)
class Paused:
    """The share does not grow until Resumed; a candidate that is worse is still rolled back."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The end of a pause."""


@dataclass(frozen=True, slots=True)
class PromoteAsked:
    """A user wants the candidate promoted now, whatever the evidence; it waits until the candidate is warm."""

    who: str = ""


@dataclass(frozen=True, slots=True)
class RollBackAsked:
    """A user wants the candidate rolled back now."""

    who: str = ""
    why: str = ""


Evidence = Warmed | VersionAnswered | Compared | Crashed | Paused | Resumed | PromoteAsked | RollBackAsked


@dataclass(frozen=True, slots=True)
class Comparison:
    """One criterion by which the versions are compared: counts, and what they show."""

    name: str
    seen: int  # observations of the candidate
    of: int
    stable_seen: int
    stable_of: int
    evidence: float = 0.0  # that the candidate is worse; the rollout is rolled back when their sum reaches 1/alpha
    accepted: float | None = None  # a share that must not be exceeded for the next step; None: nothing is required
    missing: int | None = 0  # about how many more observations show that; None: it would not be shown as it looks now

    @property
    def is_shown(self) -> bool:
        return self.missing == 0

    def __str__(self) -> str:
        stable = f" (stable {self.stable_seen:,} of {self.stable_of:,})" if self.stable_of else ""
        return f"{self.name} {self.seen:,} of {self.of:,}{stable}"


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the traffic as it is."""

    reason: str = field(compare=False)  # not compared: wording may change between releases
    figures: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """Give the candidate this share of the live requests."""

    share: float
    reason: str = field(compare=False)
    figures: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class Promote:
    """Give the candidate all of the traffic: it is the stable version now."""

    reason: str = field(compare=False)
    figures: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True)
class RollBack:
    """Give the stable version all of the traffic and drain the candidate."""

    reason: str = field(compare=False)
    figures: tuple[Comparison, ...] = ()


RolloutDecision = Keep | Advance | Promote | RollBack


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How the share of the candidate grows, and how much worse it may be."""

    ladder: tuple[float, ...] = (0.01, 0.05, 0.25, 1.0)  # shares; 1: promoted; empty: shadow until a user decides
    alpha: float = 0.01  # the chance that a candidate as good as the stable version is rolled back, over the rollout
    shadow: bool = True
    slo_s: float | None = None
    disagreement_bound: float | None = None  # share of compared rows; None: differences are shown and decide nothing
    error_tolerance: float = 0.01  # failures more than the stable version's that must be ruled out, of all requests
    slow_factor: float = 1.1  # an answer is slow above the stable version's percentile times this
    median_tolerance: float = 0.1  # slow answers more than the stable version's, of all
    tail_tolerance: float = 0.02
    step_alpha: float = 0.05  # the chance that a step is taken by a candidate that exceeds a tolerance
    min_step_s: float = 10.0  # least time at each share
    max_loading_s: float = 900.0

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip(self.ladder, self.ladder[1:], strict=False))
        shares = all(0 < share <= 1 for share in self.ladder)
        _check("ladder", self.ladder, shares and rising, "rising shares above 0 and up to 1")
        _check("ladder", self.ladder, bool(self.ladder) or self.shadow, "at least one share, or `shadow = true`")
        for name in ("alpha", "step_alpha"):
            _check(name, getattr(self, name), 0 < getattr(self, name) <= 0.5, "a probability above 0 and up to 0.5")
        for name in ("error_tolerance", "median_tolerance", "tail_tolerance"):
            _check(name, getattr(self, name), 0 < getattr(self, name) <= 1, "a share above 0 and up to 1")
        bound = self.disagreement_bound
        _check("disagreement_bound", bound, bound is None or 0 < bound < 1, "a share between 0 and 1, or none")
        _check("slow_factor", self.slow_factor, 1 <= self.slow_factor < math.inf, "at least 1")
        _check("slo_s", self.slo_s, self.slo_s is None or self.slo_s > 0, "a number of seconds above 0, or none")
        for name in ("min_step_s", "max_loading_s"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < math.inf, "a number of seconds, 0 or more")

    @property
    def steps(self) -> tuple[float, ...]:
        """The shares below 1, at which both versions answer."""
        return tuple(share for share in self.ladder if share < 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ladder": list(self.ladder)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RolloutSettings:
        given: dict[str, Any] = dict(data)
        given["ladder"] = tuple(data["ladder"])
        return cls(**given)


@dataclass(slots=True)
class RolloutState:
    """The whole state of a rollout, of fixed size, in plain values that JSON holds exactly."""

    stage: Stage = Stage.LOADING
    since_s: float = 0.0  # when this stage or this share began
    step: int = -1  # which of the ladder's shares; -1: none yet
    warm: bool = False
    paused: bool = False
    promote_asked: str | None = None
    crossed: float = 0.0  # evidence when it was first enough for a rollback; 0: not yet
    ended: str = ""  # reason, in the two final stages
    # of this step: requests, failed, answers held against the limits, over the median's, over the tail's, over the SLO
    stable: list[int] = field(default_factory=lambda: [0] * 6)
    candidate: list[int] = field(default_factory=lambda: [0] * 6)
    limits_s: list[float] = field(default_factory=list[float])  # stable version's p50, p99; empty: not known yet
    exposed: list[float] = field(default_factory=lambda: [0.0, 0.0])  # lately: requests of stable, candidate
    slot_s: float = 0.0
    slot: list[list[int]] = field(default_factory=lambda: [[0] * 4, [0] * 4])  # since slot_s: answers, over each limit
    # of the whole rollout
    compared: list[int] = field(default_factory=lambda: [0] * 6)  # requests, failed, rows, disagreed, timed, slower
    pair_slot_s: float = 0.0
    pair_slot: list[int] = field(default_factory=lambda: [0, 0])  # timed pairs, slower ones
    bets: dict[str, list[float]] = field(default_factory=dict[str, list[float]])  # e-values as `sequential` has them
    stable_histogram: list[int] = field(default_factory=list[int])
    candidate_histogram: list[int] = field(default_factory=list[int])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def copy(self) -> RolloutState:
        return self.from_dict(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RolloutState:
        state = cls(**data)
        state.stage = Stage(state.stage)
        return state


def _check(name: str, value: object, holds: bool, accepted: str) -> None:
    if not holds:
        raise InvalidInput(name, value, accepted)
