"""A record of what a rollout observed and decided, and its replay.

A journal is a header and entries, plain JSON lists. A decision follows from the state before it, so a server records
the state with each decision that it keeps, and every one of them replays by itself; the simulator records every event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, assert_never

from twoshift.errors import Broken
from twoshift.policy.rollout import RolloutPolicy
from twoshift.policy.rollout_values import (
    Advance,
    Compared,
    Comparison,
    Crashed,
    Evidence,
    Keep,
    Paused,
    Promote,
    PromoteAsked,
    Resumed,
    RollBack,
    RollBackAsked,
    RolloutDecision,
    RolloutSettings,
    RolloutState,
    Version,
    VersionAnswered,
    Warmed,
)

__all__ = [
    "RecordedRollout",
    "ReplayedRollout",
    "read_decision",
    "rollout_decision",
    "rollout_header",
    "rollout_replay",
]

_KIND, _FORMAT = "twoshift-rollout", 1
_KEEP_EVERY_S = 10.0  # of the decisions to keep, in a record without events
_Entry = list[Any]


class RecordedRollout(RolloutPolicy):
    """A RolloutPolicy that tells `sink` what it decides: with every event, or with the state that it follows from."""

    def __init__(
        self,
        settings: RolloutSettings | None,
        now_s: float,
        sink: Callable[[_Entry], None],
        *,
        state: RolloutState | None = None,  # of a rollout that goes on after a restart
        events: bool = False,
    ) -> None:
        super().__init__(settings, now_s, state)
        self._sink, self._events = sink, events
        self._recorded_s: float | None = None
        self._ended = False  # in the record, too
        sink(rollout_header(self.settings, self.state()))

    def observe(self, event: Evidence, now_s: float) -> None:
        if self._events and not self.stage.is_final:
            self._sink(_event(event, now_s))
        super().observe(event, now_s)

    def decide(self, now_s: float) -> RolloutDecision:
        was_final = self.stage.is_final
        before = None if self._events else self.state()
        decision = super().decide(now_s)
        if self._is_recorded(decision, was_final, now_s):
            if before is not None:
                self._sink(["state", before.to_dict()])
            self._sink(["decide", now_s, rollout_decision(decision)])
            self._recorded_s, self._ended = now_s, self.stage.is_final
        return decision

    def _is_recorded(self, decision: RolloutDecision, was_final: bool, now_s: float) -> bool:
        if was_final and self._ended:
            return False
        is_due = self._recorded_s is None or now_s - self._recorded_s >= _KEEP_EVERY_S
        return self._events or is_due or not isinstance(decision, Keep)


@dataclass(frozen=True, slots=True)
class ReplayedRollout:
    """A decision as recorded, and as decided now."""

    number: int  # of the entry
    now_s: float
    state: RolloutState  # before it
    recorded: RolloutDecision
    decided: RolloutDecision

    @property
    def differs(self) -> bool:
        return self.recorded != self.decided


def rollout_header(settings: RolloutSettings, state: RolloutState) -> _Entry:
    """The first entry of a record, or of its next part after a restart."""
    return [_KIND, _FORMAT, settings.to_dict(), state.to_dict()]


def rollout_decision(decision: RolloutDecision) -> _Entry:
    """A decision and its evidence as plain values."""
    match decision:
        case Keep():
            name: list[Any] = ["keep"]
        case Advance():
            name = ["advance", decision.share]
        case Promote():
            name = ["promote"]
        case RollBack():
            name = ["roll_back"]
        case _:
            assert_never(decision)
    return [*name, decision.reason, [asdict(figure) for figure in decision.figures]]


def read_decision(entry: _Entry) -> RolloutDecision:
    """Inverse of `rollout_decision`."""
    kind, *share, reason, figures = entry
    found = tuple(Comparison(**figure) for figure in figures)
    match kind:
        case "keep":
            return Keep(reason, found)
        case "advance":
            return Advance(share[0], reason, found)
        case "promote":
            return Promote(reason, found)
        case "roll_back":
            return RollBack(reason, found)
        case _:
            raise ValueError(f"unknown decision {kind!r}")


def rollout_replay(entries: Iterable[_Entry], overrides: Mapping[str, Any] | None = None) -> Iterator[ReplayedRollout]:
    """Feed what was recorded to fresh policies; `overrides` are settings that it is tried with.

    Raises Broken on a record that cannot be read.
    """
    player = _Player(overrides or {})
    for number, entry in enumerate(entries, start=1):
        try:
            replayed = player.play(number, entry)
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise Broken(f"the record of a rollout cannot be replayed: entry {number}: {error}"[:500]) from error
        if replayed is not None:
            yield replayed


class _Player:
    def __init__(self, overrides: Mapping[str, Any]) -> None:
        self._overrides = overrides
        self._settings = RolloutSettings()
        self._policy: RolloutPolicy | None = None

    def play(self, number: int, entry: _Entry) -> ReplayedRollout | None:
        """Apply one entry; None where it holds no decision."""
        if entry[0] == _KIND:
            self._begin(entry)
            return None
        if self._policy is None:
            raise ValueError(f"the record does not begin with a {_KIND} header")
        match entry:
            case ["state", state]:
                self._policy = RolloutPolicy.restored(self._settings, RolloutState.from_dict(state))
            case ["decide", now_s, recorded]:
                before = self._policy.state()
                return ReplayedRollout(number, now_s, before, read_decision(recorded), self._policy.decide(now_s))
            case [name, now_s, *values]:
                self._policy.observe(_read_event(name, values), now_s)
            case _:
                raise ValueError(f"unknown entry {entry!s:.100}")
        return None

    def _begin(self, header: _Entry) -> None:
        _, version, settings, state = header
        if version != _FORMAT:
            raise ValueError(
                f"the format of the record is {version}, but this version of Twoshift reads only format {_FORMAT}"
            )
        self._settings = RolloutSettings.from_dict({**settings, **self._overrides})
        self._policy = RolloutPolicy.restored(self._settings, RolloutState.from_dict(state))


def _event(event: Evidence, now_s: float) -> _Entry:
    match event:
        case Warmed():
            return ["warmed", now_s]
        case VersionAnswered():
            return ["answered", now_s, event.version.value, event.latency_s, event.failed]
        case Compared():
            times = [event.candidate_s, event.stable_s]
            return ["compared", now_s, event.rows, event.disagreed, *times, event.failed]
        case Crashed():
            return ["crashed", now_s, event.version.value, event.why]
        case Paused():
            return ["paused", now_s]
        case Resumed():
            return ["resumed", now_s]
        case PromoteAsked():
            return ["promote_asked", now_s, event.who]
        case RollBackAsked():
            return ["roll_back_asked", now_s, event.who, event.why]
        case _:
            assert_never(event)


def _read_event(name: str, values: _Entry) -> Evidence:
    match name:
        case "warmed":
            return Warmed()
        case "answered":
            return VersionAnswered(Version(values[0]), *values[1:])
        case "compared":
            return Compared(*values)
        case "crashed":
            return Crashed(Version(values[0]), *values[1:])
        case "paused":
            return Paused()
        case "resumed":
            return Resumed()
        case "promote_asked":
            return PromoteAsked(*values)
        case "roll_back_asked":
            return RollBackAsked(*values)
        case _:
            raise ValueError(f"unknown entry {name!r}")
