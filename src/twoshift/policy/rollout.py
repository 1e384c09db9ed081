"""State machine of a rollout: evidence about a candidate in; keep, advance, promote or roll back out."""

from __future__ import annotations

from typing import assert_never

from twoshift.durations import format_duration
from twoshift.policy.rollout_evidence import RolloutEvidence
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
    Stage,
    Version,
    VersionAnswered,
    Warmed,
)

__all__ = ["RolloutPolicy", "falls_in_share"]

_MASK = (1 << 64) - 1
_SURPRISING = 7  # requests that should be the candidate's by now: none of them by chance is one case in a thousand
_FINAL = (Stage.PROMOTED, Stage.ROLLED_BACK)


class RolloutPolicy:
    """Watches one candidate beside the stable version and decides by itself; a final decision stays.

    The clock that `now_s` comes from must go on over restarts: seconds since 1970, not since a start.
    """

    def __init__(self, settings: RolloutSettings | None, now_s: float, state: RolloutState | None = None) -> None:
        self.settings = settings or RolloutSettings()
        self._steps = self.settings.steps
        self._state = RolloutState(since_s=now_s) if state is None else state.copy()
        self._evidence = RolloutEvidence(self.settings, self._state)

    @classmethod
    def restored(cls, settings: RolloutSettings | None, state: RolloutState) -> RolloutPolicy:
        """As it was when it gave this state; the same events lead it to the same decisions."""
        return RolloutPolicy(settings, state.since_s, state)

    def state(self) -> RolloutState:
        """A copy of the whole state."""
        return self._state.copy()

    @property
    def stage(self) -> Stage:
        return self._state.stage

    @property
    def is_paused(self) -> bool:
        return self._state.paused

    @property
    def share(self) -> float:
        """Share of the live requests that the candidate answers now."""
        if self._state.stage is Stage.PROMOTED:
            return 1.0
        return self._steps[self._state.step] if self._state.stage is Stage.LADDER else 0.0

    @property
    def wants_copies(self) -> bool:
        """Whether copied requests are of use: in the shadow, and where answers must agree, at every share."""
        bound = self.settings.disagreement_bound
        return self.stage is Stage.SHADOW or (self.stage is Stage.LADDER and self.settings.shadow and bound is not None)

    @property
    def evidence(self) -> float:
        """Evidence that the candidate is worse in any respect; it is rolled back when this reaches 1/alpha."""
        return self._evidence.total()

    @property
    def is_urgent(self) -> bool:
        """Whether `decide` would end the rollout now: it need not wait for the next look. As cheap as an attribute."""
        return self._state.crossed > 0 or self._state.stage in _FINAL

    def figures(self) -> tuple[Comparison, ...]:
        """The comparisons so far: failures, slow answers, disagreement."""
        return self._evidence.figures()

    def percentiles_s(self) -> dict[str, dict[str, float | None]]:
        """The p50 and p99 of live answers by version, in seconds."""
        return self._evidence.percentiles_s()

    def observe(self, event: Evidence, now_s: float) -> None:
        """Take in one piece of evidence; after a final decision nothing counts."""
        state = self._state
        if state.stage in _FINAL:
            return
        match event:
            case VersionAnswered():
                self._evidence.answered(event.version is Version.CANDIDATE, event.latency_s, event.failed, now_s)
            case Compared():
                self._evidence.compared(event, now_s)
            case Warmed():
                self._warmed(now_s)
            case Crashed():
                if event.version is Version.CANDIDATE:
                    self._end(Stage.ROLLED_BACK, f"the candidate crashed: {event.why}")
            case Paused() | Resumed():
                state.paused = isinstance(event, Paused)
            case PromoteAsked():
                state.promote_asked = event.who
            case RollBackAsked():
                why = f": {event.why}" if event.why else ""
                self._end(Stage.ROLLED_BACK, f"requested{_by(event.who)}{why}")
            case _:
                assert_never(event)

    def decide(self, now_s: float) -> RolloutDecision:
        """What follows from the evidence now; the policy is already in the stage that the decision says."""
        state = self._state
        if not state.stage.is_final:
            if not state.warm:
                return self._judge_loading(now_s)
            figures = self.figures()
            if state.promote_asked is not None:
                self._end(Stage.PROMOTED, f"requested{_by(state.promote_asked)}")
            elif self.is_urgent:
                self._end(Stage.ROLLED_BACK, self._worse(figures))
            else:
                return self._judge_step(figures, now_s)
        made = Promote if state.stage is Stage.PROMOTED else RollBack
        return made(state.ended, self.figures())

    def _warmed(self, now_s: float) -> None:
        state = self._state
        if state.warm:
            return
        if self.settings.shadow:
            state.stage = Stage.SHADOW
            self._evidence.begin(-1, now_s)
        state.warm = True

    def _judge_loading(self, now_s: float) -> RolloutDecision:
        state = self._state
        if now_s - state.since_s > self.settings.max_loading_s:
            self._end(Stage.ROLLED_BACK, f"the candidate was not warm after {self.settings.max_loading_s:g} s")
            return RollBack(state.ended)
        if state.promote_asked is not None:
            return Keep(f"the candidate is loading, and will then be promoted, as requested{_by(state.promote_asked)}")
        return Keep("the candidate is loading")

    def _worse(self, figures: tuple[Comparison, ...]) -> str:
        total, needed = self._state.crossed, 1 / self.settings.alpha
        worst = max(figures, key=lambda figure: figure.evidence)
        evidence = f"the evidence is {total:.4g}, and {needed:.4g} is enough to roll back"
        return f"worse than the stable version: {worst}; {evidence}"

    def _judge_step(self, figures: tuple[Comparison, ...], now_s: float) -> RolloutDecision:
        state = self._state
        if state.paused:
            return Keep("paused", figures)
        if state.stage is not Stage.LOADING:
            if state.stage is Stage.SHADOW and not self.settings.ladder:
                return Keep("the candidate stays in the shadow stage until you promote it or roll it back", figures)
            missing = self._missing(figures, now_s)
            if missing:
                return Keep(missing, figures)
        return self._step(figures, now_s)

    def _step(self, figures: tuple[Comparison, ...], now_s: float) -> RolloutDecision:
        state = self._state
        next_step = state.step + 1
        shown = (
            f"not worse than the stable version in any of {len(figures)} criteria"
            if state.stage is not Stage.LOADING
            else ""
        )
        if next_step >= len(self._steps):
            self._end(Stage.PROMOTED, shown or "promoted immediately: `ladder` has no share below 100 %")
            return Promote(state.ended, figures)
        state.stage = Stage.LADDER
        self._evidence.begin(next_step, now_s)
        return Advance(self.share, shown or "the candidate is warm", figures)

    def _missing(self, figures: tuple[Comparison, ...], now_s: float) -> str:
        """The evidence that the next step still needs; empty if none."""
        state, in_shadow = self._state, self._state.stage is Stage.SHADOW
        age_s = now_s - state.since_s
        if self.settings.shadow and not state.compared[0] and (in_shadow or self.wants_copies):
            return "missing: copies of live requests; so far there was no traffic, or no idle time to run a copy"
        if not in_shadow and not state.candidate[0] and state.stable[0] * self.share > _SURPRISING:
            return (
                f"missing: requests to the candidate; none of {state.stable[0]:,} requests fell into its share of "
                f"{self.share:.0%}, because the requests have too few different keys: use a larger share"
            )
        open_figures = [figure for figure in figures if not figure.is_shown]
        if open_figures:
            return f"missing evidence: {'; '.join(map(_still, open_figures))}{self._outlook(open_figures, age_s)}"
        if not in_shadow and not self._evidence.knows_latency():
            return "missing: answers of the stable version, whose latency is needed for the comparison"
        if not in_shadow and age_s < self.settings.min_step_s:
            return f"missing: time at this share; {age_s:.0f} of {self.settings.min_step_s:g} s have passed"
        return ""

    def _outlook(self, figures: list[Comparison], age_s: float) -> str:
        """How long it takes as it looks now, in live requests and in time."""
        if self._state.stage is not Stage.LADDER or any(figure.missing is None for figure in figures):
            return ""
        requests = max(figure.missing or 0 for figure in figures) / self.share
        seen = self._state.stable[0] + self._state.candidate[0]
        time = f", {format_duration(requests * age_s / seen)} at this rate" if seen and age_s > 0 else ""
        return f" (about {_about(requests)} live requests at a share of {self.share:.0%}{time})"

    def _end(self, stage: Stage, why: str) -> None:
        self._state.stage, self._state.ended = stage, why


def falls_in_share(request_key: int, share: float) -> bool:
    """Whether this key belongs to the share; a key in a share belongs to every larger one too."""
    # splitmix64's finaliser: neighbouring keys land far apart
    mixed = (request_key + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) < share * (_MASK + 1)


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _still(figure: Comparison) -> str:
    limit = "" if figure.accepted is None else f", limit {figure.accepted:.2%}"
    if figure.missing is None:
        return f"{figure}{limit}: above the limit with the current results"
    return f"{figure}{limit}: about {_about(figure.missing)} more observations needed"


def _about(number: float) -> str:
    """The number with two significant digits."""
    return f"{int(float(f'{number:.1e}')):,}"
