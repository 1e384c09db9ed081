"""One rollout in this process: the candidate, the evidence about it, and what was decided, done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Protocol

from twoshift.errors import Broken, TwoshiftError, message_of
from twoshift.policy.answer_differences import DifferenceSummary
from twoshift.policy.rollout import RolloutPolicy
from twoshift.policy.rollout_values import (
    Crashed,
    Evidence,
    Keep,
    Paused,
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
from twoshift.rollout_ports import RolloutEvent, RolloutRecord, RolloutStore
from twoshift.serve.counts import HistogramCounts
from twoshift.serve.deployments import Deployment
from twoshift.serve.evidence_curve import EvidenceCurve
from twoshift.serve.live_model import crashes_of
from twoshift.serve.shadow import Shadow
from twoshift.serve.trial import Trial
from twoshift.serve.versions import VersionSplit

__all__ = ["RolloutRun", "VersionActs"]

_logger = logging.getLogger("twoshift.rollouts")
_SAVE_S = 3.0  # between two writes of the evidence while nothing is decided
_FIRST_ANSWERS = 10
_FLOOR = 0.05  # of the SLO: a version with few requests is woken for each, and nobody minds answers that fast
Split = VersionSplit[Deployment]


class VersionActs(Protocol):
    """Who loads candidates and lets versions go."""

    def load_candidate(self, name: str, model: str, salt: str, cancelled: Future[None]) -> Future[Split]:
        """A version that is loaded beside the one that answers, and gets no requests yet."""
        ...

    def end_candidate(self, split: Split, promoted: bool, grace_s: float) -> Future[None]:
        """One of the two answers alone, at once; then the other is let go."""
        ...

    def replace(self, name: str, model: str, before: str) -> Future[None]:
        """Let what answers go, then load that model."""
        ...


class RolloutRun:
    """Of the thread that drives rollouts, but for `stop_now`."""

    def __init__(
        self,
        record: RolloutRecord,
        deployment: Deployment,
        acts: VersionActs,
        store: RolloutStore,
        shadow_for: Callable[[Split], Shadow],
        drain_s: float,
        look: Callable[[], None],  # asks for the next step now
    ) -> None:
        self.record, self.deployment = record, deployment
        self._acts, self._store, self._shadow_for, self._drain_s = acts, store, shadow_for, drain_s
        self._look = look
        self.trial: Trial | None = None  # where the candidate runs in this process
        self._unanswered = _FIRST_ANSWERS  # of the candidate, until it is known not to end the process
        self._policy: RolloutPolicy | None = None  # while this server leads
        self._cancelled: Future[None] = Future()
        self._loading: Future[Split] | None = None
        self._replacing: Future[None] = Future()
        self._split: Split | None = None
        self._shadow: Shadow | None = None
        self._crashes = {Version.STABLE: 0, Version.CANDIDATE: 0}
        slo_s = record.settings.get("slo_s")
        self._floor_s = 0.0 if slo_s is None else _FLOOR * slo_s
        self._saved_s = 0.0
        self.evidence = EvidenceCurve()
        self._unsaved: RolloutDecision | None = None
        self.is_done = False

    def step(self, now_s: float) -> None:
        """Look, judge where this server leads, and do what was decided; raises TryLater."""
        if self._loading is None:
            self._begin()
        record = self._store.get(self.record.id)
        if not record.is_over and self._store.lead(record.id):
            record = self._judged(record, now_s)
        else:
            self._policy = None
            for _ in self._evidence():
                pass  # who leads has its own
        self.record = record
        self._apply()

    @property
    def differences(self) -> DifferenceSummary | None:
        """Of the answers that were compared here; None where none are now."""
        return None if self._shadow is None else self._shadow.differences()

    @property
    def candidate_latency(self) -> HistogramCounts | None:
        """Of its live requests; None where it had none of its own."""
        return None if self._split is None else self._split.counted.total().latency

    def stop_now(self, why: str) -> None:
        """The stable version answers alone, whatever can be written down now."""
        split = self._split
        if split is not None:
            split.share = 0.0
        _logger.warning(
            "%s: the candidate %s gets no requests for now: %s", self.record.deployment, self.record.candidate, why
        )

    def abandon(self) -> None:
        """What loads is not waited for; what is loaded answers what it has admitted."""
        self._end_trial()
        is_loading = self._loading is not None and not self._loading.done()
        if is_loading and not self._cancelled.done():
            self._cancelled.set_result(None)
        if self._shadow is not None:
            self._shadow.close()

    # Loading

    def _begin(self) -> None:
        record = self.record
        if self.trial is not None:
            if why := self.trial.why_not():
                self._loading, self._replacing = Future(), Future()
                for each in (self._loading, self._replacing):
                    each.set_exception(Broken(why))
                return
            self.trial.begin()
        if record.mode == "replace":
            self._loading = Future()
            self._replacing = self._acts.replace(record.deployment, record.candidate, record.stable)
            return
        self._loading = self._acts.load_candidate(record.deployment, record.candidate, record.id, self._cancelled)

    # Judging

    def _judged(self, record: RolloutRecord, now_s: float) -> RolloutRecord:
        """The record after what is decided now."""
        policy = self._policy = self._policy or _policy_of(record, now_s)
        for event in self._evidence():
            policy.observe(event, now_s)
        for asked in record.asked:
            policy.observe(_asked(asked), now_s)
        if record.mode == "now" and self._split is not None:
            policy.observe(PromoteAsked(record.who), now_s)
        decision = policy.decide(now_s)
        self.evidence.add(now_s, policy.share, decision.figures)
        if not isinstance(decision, Keep):
            self._unsaved = decision
            if policy.stage is Stage.ROLLED_BACK and self._split is not None:
                self._split.share = 0.0  # at once: the database may not answer
        return self._saved(record, policy, decision, now_s)

    def _saved(
        self, record: RolloutRecord, policy: RolloutPolicy, decision: RolloutDecision, now_s: float
    ) -> RolloutRecord:
        shown = self._unsaved or decision
        is_news = self._unsaved is not None or bool(record.asked) or policy.stage != record.stage
        if not is_news and now_s - self._saved_s < _SAVE_S:
            return record
        figures = (*map(str, shown.figures), *self._compared())
        reason = f"{shown.reason}{self._last_failure(shown)}"
        event = RolloutEvent(now_s, f"{_word(shown)}: {reason}", figures) if is_news else None
        saved = self._store.save(
            record.id, event, len(record.asked), stage=str(policy.stage), share=policy.share,
            paused=policy.is_paused, reason=reason, state=policy.state().to_dict(),
        )  # fmt: skip
        if not saved:  # another server leads by now
            self._policy = None
            return self._store.get(record.id)
        if event is not None:
            told = f" ({'; '.join(figures)})" if figures else ""
            _logger.warning("%s, %s: %s%s", record.deployment, record.candidate, event.text, told)
        self._saved_s, self._unsaved = now_s, None
        return self._store.get(record.id)

    def _compared(self) -> tuple[str, ...]:
        """Kept with the decision: nobody can ask the shadow once it has ended."""
        seen = self.differences
        if seen is None or not seen.rows:
            return ()
        above = f"{seen.share_above:.2%} differ by more than {seen.bound:g}"
        return (f"answers compared: {seen.rows:,}; difference p50 {seen.p50:.4f}, p99 {seen.p99:.4f}; {above}",)

    def _last_failure(self, decision: RolloutDecision) -> str:
        """With what a candidate that is rolled back has failed, as far as this process has seen it."""
        if not isinstance(decision, RollBack):
            return ""
        told = [each.why_failed for each in (self._split, self._shadow) if each is not None and each.why_failed]
        return f"; the last error of the candidate: {told[0]}" if told else ""

    def _evidence(self) -> Iterator[Evidence]:
        """What was seen since the last time."""
        yield from self._loaded()
        split = self._split
        if split is None:
            return
        for version, model in ((Version.STABLE, split.stable), (Version.CANDIDATE, split.candidate)):
            seen = [] if model.watch is None else model.watch.taken()
            self._count_answers(len(seen) if version is Version.CANDIDATE else 0)
            for seconds, failed in seen:
                yield VersionAnswered(version, max(seconds, self._floor_s), failed)
            serving = model.serving
            crashes = 0 if serving is None else crashes_of(serving.backend)
            if crashes > self._crashes[version]:
                yield Crashed(version, "a replica ended, or its engine stopped")
            self._crashes[version] = crashes
        if self._shadow is not None:
            compared = self._shadow.taken()
            self._count_answers(len(compared))
            yield from compared

    def _count_answers(self, more: int) -> None:
        """A candidate that has answered often enough is not one that ends the process at its first calls."""
        self._unanswered -= more
        if self._unanswered <= 0:
            self._end_trial()

    def _end_trial(self) -> None:
        trial, self.trial = self.trial, None
        if trial is not None:
            trial.end()

    def _loaded(self) -> Iterator[Evidence]:
        if self.record.mode == "replace":
            yield from self._replaced()
            return
        loading = self._loading
        if loading is None or self._split is not None or not loading.done():
            return
        if (error := loading.exception()) is not None:
            yield Crashed(Version.CANDIDATE, f"the version could not be loaded: {_first(error)}")
            return
        self._split = loading.result()
        if (watch := self._split.candidate.watch) is not None:
            watch.on_failure = self._look
        self._crashes = {
            version: crashes_of(model.backend)
            for version, model in (
                (Version.STABLE, self._split.stable), (Version.CANDIDATE, self._split.candidate)
            )
        }  # fmt: skip
        yield Warmed()

    def _replaced(self) -> Iterator[Evidence]:
        if not self._replacing.done():
            return
        if (error := self._replacing.exception()) is not None:
            yield Crashed(Version.CANDIDATE, f"the version could not be loaded: {_first(error)}")
            return
        yield Warmed()
        yield PromoteAsked(self.record.who)

    # Doing

    def _apply(self) -> None:
        """What the record says, whoever has decided it."""
        record, split = self.record, self._split
        if record.is_over:
            self._end(promoted=record.stage == Stage.PROMOTED)
            return
        if split is None:
            return
        split.share = record.share if record.stage == Stage.LADDER else 0.0
        wants = self._policy is not None and self._policy.wants_copies
        if wants and self._shadow is None:
            self._shadow = split.shadow = self._shadow_for(split)
        elif not wants and self._shadow is not None:
            self._end_shadow()

    def _end(self, promoted: bool) -> None:
        record, loading = self.record, self._loading
        self._end_shadow()
        if record.mode == "replace":
            if self._replacing.done():
                self._finish()
            return
        if promoted and self._split is None:
            self._wait_for(loading)
            return
        if promoted:
            self.deployment.word = record.candidate
        elif loading is not None and self._split is None:
            if not loading.done():
                self.abandon()
                return  # it may still come
            self._split = None if loading.exception() is not None else loading.result()
        if self._split is not None:
            self._acts.end_candidate(self._split, promoted, self._drain_s)
        self._finish()

    def _finish(self) -> None:
        self._end_trial()
        self.is_done = True

    def _wait_for(self, loading: Future[Split] | None) -> None:
        """Another server has promoted it: this one follows once it has loaded it."""
        if loading is None or not loading.done():
            return
        if (error := loading.exception()) is None:
            self._split = loading.result()
            return
        told = "%s: %s was promoted, but could not be loaded on this server: %s"
        _logger.error(told, self.record.deployment, self.record.candidate, error)
        self._finish()

    def _end_shadow(self) -> None:
        shadow, self._shadow = self._shadow, None
        if self._split is not None:
            self._split.shadow = None
        if shadow is not None:
            shadow.close()


def _policy_of(record: RolloutRecord, now_s: float) -> RolloutPolicy:
    settings = RolloutSettings.from_dict(record.settings)
    if not record.state:
        return RolloutPolicy(settings, now_s)
    return RolloutPolicy.restored(settings, RolloutState.from_dict(record.state))


def _asked(words: str) -> Evidence:
    what, _, who = words.partition(" ")
    match what:
        case "promote":
            return PromoteAsked(who)
        case "rollback":
            by, _, why = who.partition(": ")
            return RollBackAsked(by, why)
        case "pause":
            return Paused()
        case _:
            return Resumed()


def _word(decision: RolloutDecision) -> str:
    return type(decision).__name__.lower().replace("rollback", "roll back")


def _first(error: BaseException) -> str:
    told = str(error) if isinstance(error, TwoshiftError) else message_of(error)
    return told.partition("\n")[0][:500]
