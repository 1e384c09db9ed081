"""Versions that come and go in a running server: who asks for one, and the thread that judges what was asked for."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple, Protocol

import msgspec

from twoshift.closable_thread import ClosableThread
from twoshift.config import home
from twoshift.decodable import decodable
from twoshift.errors import Inapplicable, InvalidInput, NotFound, TryLater, TwoshiftError, WrongState
from twoshift.policy.answer_differences import DifferenceSummary
from twoshift.prediction_ports import Prediction
from twoshift.registry.names import parse_ref
from twoshift.rollout_ports import RolloutEvent, RolloutRecord, RolloutStore
from twoshift.serve.deployments import Deployment, Deployments
from twoshift.serve.evidence_curve import EvidenceCurve, EvidencePoint
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import ServedModel
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.promotion_scores import PromotionScores
from twoshift.serve.rollout_run import RolloutRun, Split, VersionActs
from twoshift.serve.shadow import Shadow
from twoshift.serve.trial import Trial

__all__ = ["Candidate", "DeployRequest", "Rollouts", "VersionSource"]

_logger = logging.getLogger("twoshift.rollouts")
_TICK_S, _LEAST_S = 1.0, 0.05  # between two looks; where a candidate fails
_LATE_S = 5.0  # without the database, after which no caller is given to a candidate
_CLOSE_S = 3.0
_LONGEST_WHO = 200
_MOST_PAST = 50  # rollouts whose evidence is kept after their end


@decodable
class DeployRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of POST /v1/deployments."""

    model: str  # NAME:4 or NAME@alias
    deployment: str | None = None  # where several serve that model
    mode: Literal["canary", "shadow", "now", "replace"] = "canary"
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None  # to begin with, without a shadow


class Candidate(NamedTuple):
    """What a word names in the registry."""

    ref: str  # NAME:4
    size_bytes: int


class VersionSource(Protocol):
    """Registered versions."""

    def find(self, deployment: str, model: str) -> Candidate:
        """Raises NotFound with the known ones, InvalidInput, TryLater where the registry does not answer."""
        ...

    def check_room(self, deployment: str, candidate: Candidate) -> None:
        """Raises TooLarge where the memory does not hold it beside the version that answers."""
        ...


class Rollouts:
    """Any thread may ask; one of its own looks, judges and acts."""

    def __init__(
        self,
        store: RolloutStore,
        models: Deployments,
        settings: Mapping[str, ModelSettings],
        acts: VersionActs,
        source: VersionSource,
        shadow_for: Callable[[ModelSettings, Split], Shadow],
    ) -> None:
        self._store, self._models, self._settings, self._acts = store, models, settings, acts
        self._source, self._shadow_for = source, shadow_for
        self._runs: dict[str, RolloutRun] = {}  # by id; of the thread
        self.scored: Callable[[Prediction], None] = lambda _scored: None  # told what came of predictions
        self._promotions = PromotionScores()
        self._past: dict[str, EvidenceCurve] = {}  # of those that are over
        self.ended: Counter[tuple[str, str]] = Counter()  # since the start, by deployment and final stage
        self._followed: dict[str, tuple[float, str]] = {}  # by deployment: when its alias was looked at; what it named
        self._answered_s = time.monotonic()  # the database, last
        self._woken = threading.Event()
        self._turn = threading.Lock()  # held while the thread looks and acts
        self._thread = ClosableThread(self._keep, "twoshift-rollouts", _CLOSE_S, self._woken)

    def start(self) -> None:
        """Go on with what an earlier server has left."""
        self._thread.start()

    def close(self) -> None:
        """Judge no more; another server may go on at once."""
        self._thread.close()
        for run in [*self._runs.values()]:
            run.abandon()
        with contextlib.suppress(TwoshiftError):
            self._store.release()

    def word_for(self, name: str) -> str | None:
        """The model that a deployment has to load at the start, where rollouts have changed it; raises TryLater."""
        last = self._store.last(name, self._settings[name].model)
        if last is None:
            return None
        return last.candidate if last.stage == "promoted" else last.stable

    # The desk

    def deploy(self, asked: DeployRequest, who: str = "") -> RolloutRecord:
        """Begin a rollout; raises InvalidInput, NotFound, TooLarge, TryLater."""
        deployment = self._deployment_for(asked)
        return self._begin(deployment, asked, who)

    def list(self, limit: int = 100, deployment: str | None = None) -> list[RolloutRecord]:
        """The newest first."""
        return self._store.list(limit, deployment)

    def get(self, rollout: str) -> RolloutRecord:
        """By its id, or the newest one of that deployment; raises NotFound."""
        if rollout in self._models.all:
            found = self._store.list(1, rollout)
            if found:
                return found[0]
            raise NotFound("rollout", rollout, f"a rollout id; {rollout} is a deployment without rollouts")
        return self._store.get(rollout)

    def events(self, rollout_id: str) -> list[RolloutEvent]:
        """What was decided, oldest first."""
        return self._store.events(rollout_id)

    def differences(self, rollout_id: str) -> DifferenceSummary | None:
        """Of the answers that this server has compared; None: it compares none now."""
        run = self._runs.get(rollout_id)
        return None if run is None else run.differences

    def evidence(self, rollout_id: str) -> list[EvidencePoint]:
        """How it grew, as far as this server has judged it since its start."""
        run = self._runs.get(rollout_id)
        curve = self._past.get(rollout_id) if run is None else run.evidence
        return [] if curve is None else curve.points()

    def ask(self, rollout: str, what: str, who: str = "", why: str = "") -> RolloutRecord:
        """`promote`, `rollback`, `pause` or `resume`; raises NotFound, and InvalidInput where it is over."""
        record = self.get(rollout)
        words = f"{what} {who[:_LONGEST_WHO]}{f': {why[:500]}' if why else ''}".strip()
        if not self._store.ask(record.id, words):
            raise WrongState("rollout", record.stage.replace("_", " "), "only a rollout in progress can be changed")
        self._woken.set()
        return self._store.get(record.id)

    def interrupt(self, name: str) -> None:
        """Its model is loaded anew: a candidate has nothing to be compared with."""
        for run in [*self._runs.values()]:
            if run.record.deployment == name and not run.is_done and run.record.mode != "replace":
                with contextlib.suppress(TwoshiftError):
                    self._store.ask(run.record.id, "rollback : the deployment was reloaded")

    def _deployment_for(self, asked: DeployRequest) -> Deployment:
        known, ref = self._models.all, parse_ref(asked.model)
        if ref is None:
            raise InvalidInput("model", asked.model, "a version in the registry: NAME:4 or NAME@alias")
        if asked.share is not None and asked.mode != "canary":
            raise Inapplicable("share", asked.share, f"with the mode {asked.mode}: only the mode canary has a share")
        if asked.deployment is not None:
            if asked.deployment not in known:
                raise NotFound("deployment", asked.deployment, f"one of these deployments: {', '.join(sorted(known))}")
            return known[asked.deployment]
        found = [name for name, each in self._settings.items() if name in known and _is_of(ref.name, name, each)]
        if len(found) != 1:
            which = "; choose one with `twoshift deploy --as`" if found else ""
            told = f"one of these deployments: {', '.join(sorted(found or known))}{which}"
            raise (InvalidInput if found else NotFound)("deployment", None if found else ref.name, told)
        return known[found[0]]

    def _begin(self, deployment: Deployment, asked: DeployRequest, who: str) -> RolloutRecord:
        name, each = deployment.name, self._settings[deployment.name]
        found = self._source.find(name, asked.model)
        backend = deployment.backend  # raises why nothing answers
        stable = _word_of(deployment, each)
        _check_other(deployment, stable, found.ref)
        if asked.mode != "replace":
            self._source.check_room(name, found)
        policy = each.rollout.policy(backend.derived.slo_s, each.load_timeout_s, asked.mode, asked.share)
        now_s = time.time()
        record = RolloutRecord(
            f"ro-{uuid.uuid4().hex[:12]}", name, each.model, stable, found.ref, asked.mode,
            who[:_LONGEST_WHO], policy.to_dict(), now_s, updated_unix_s=now_s, reason="the candidate is loading",
        )  # fmt: skip
        if not self._store.add(record):
            active = next((other for other in self._store.active() if other.deployment == name), None)
            if active is None:
                raise TryLater(f"a rollout of {name} has just ended", _TICK_S)
            why = f"because the rollout {active.id} of {name} to {active.candidate} is in progress"
            raise Inapplicable("model", asked.model, f"{why}: first promote that rollout or roll it back")
        self._woken.set()
        return record

    # The thread

    def _keep(self, closed: threading.Event) -> None:
        while not closed.is_set():
            self._woken.wait(_TICK_S)
            self._woken.clear()
            if closed.is_set():
                return
            try:
                self.turn(time.time())
                self._answered_s = time.monotonic()
            except TryLater as error:
                self._without_database(str(error))
            except Exception:
                _logger.exception("rollouts could not be updated; the server tries again")
            closed.wait(_LEAST_S)

    def turn(self, now_s: float) -> None:
        """Look at everything once; raises TryLater."""
        with self._turn:
            for record in self._store.active():
                if record.id not in self._runs and (deployment := self._models.get(record.deployment)) is not None:
                    self._runs[record.id] = self._run_of(record, deployment)
            for rollout_id, run in [*self._runs.items()]:
                run.step(now_s)
                if run.is_done:
                    del self._runs[rollout_id]
                    self._past = dict([*self._past.items(), (rollout_id, run.evidence)][-_MOST_PAST:])
                    self._ended(run, now_s)
            for each in self._promotions.due(now_s):
                self.scored(each)
            self._follow_aliases()

    def _ended(self, run: RolloutRun, now_s: float) -> None:
        self.ended[run.record.deployment, run.record.stage] += 1
        if run.record.stage == "promoted" and run.candidate_latency is not None:
            self._promotions.promoted(run.deployment, run.record.id, run.candidate_latency, now_s)

    def _run_of(self, record: RolloutRecord, deployment: Deployment) -> RolloutRun:
        each = self._settings[record.deployment]
        run = RolloutRun(
            record, deployment, self._acts, self._store, lambda split: self._shadow_for(each, split),
            each.rollout.drain_s, self._woken.set,
        )  # fmt: skip
        if isinstance(deployment.backend, ServedModel | ServedLlm):
            run.trial = Trial(home() / "trials", record.id)
        return run

    def _without_database(self, why: str) -> None:
        """Nobody can tell what was decided elsewhere, and nothing can be written down."""
        if time.monotonic() - self._answered_s > _LATE_S:
            for run in self._runs.values():
                run.stop_now(why)

    def _follow_aliases(self) -> None:
        """Begin a rollout where an alias has moved; a registry that does not answer changes nothing."""
        for name, each in [*self._settings.items()]:
            ref, deployment = parse_ref(each.model), self._models.get(name)
            if ref is None or ref.alias is None or not each.rollout.follow or deployment is None:
                continue
            looked_s, before = self._followed.get(name, (0.0, ""))
            if time.monotonic() - looked_s < each.rollout.follow_every_s:
                continue
            with contextlib.suppress(TwoshiftError):
                self._followed[name] = (time.monotonic(), before)
                now = self._source.find(name, each.model).ref
                self._followed[name] = (time.monotonic(), now)
                if self._has_moved(deployment, each, before, now):
                    self._begin(deployment, DeployRequest(model=now), _alias_of(each))

    def _has_moved(self, deployment: Deployment, each: ModelSettings, before: str, now: str) -> bool:
        running = next((run.record for run in self._runs.values() if run.record.deployment == deployment.name), None)
        if running is not None:
            if running.who == _alias_of(each) and now != running.candidate:
                self._store.ask(running.id, f"rollback {_alias_of(each)}: the alias now points to {now}")
            self._followed.pop(deployment.name)  # it is looked at again after that one
            return False
        if now == deployment.backend.info.model or now == before:
            return False
        last = self._store.last(deployment.name, each.model)
        # At the first look nobody knows where it was: it has moved if its own last version, or the first, was another
        return bool(before) or last is None or (last.who == _alias_of(each) and last.candidate != now)


def _word_of(deployment: Deployment, settings: ModelSettings) -> str:
    """What answers now, so that it can be loaded again: an alias may have moved."""
    served = deployment.backend.info.model
    ref = parse_ref(served)
    return served if ref is not None and ref.version is not None else deployment.word or settings.model


def _alias_of(settings: ModelSettings) -> str:
    """Who has begun a rollout, where nobody did but an alias that moved."""
    return f"the alias {settings.model}"


def _is_of(model: str, name: str, settings: ModelSettings) -> bool:
    ref = parse_ref(settings.model)
    return name == model or (ref is not None and ref.name == model)


def _check_other(deployment: Deployment, stable: str, candidate: str) -> None:
    if stable == candidate:
        raise InvalidInput(
            "model", candidate, f"a version other than {candidate}, which {deployment.name} already serves"
        )
    ref = parse_ref(candidate)
    if ref is not None and str(ref.version) == deployment.version:  # clients could not tell them apart
        accepted = f"a version number other than {deployment.version}, the number of the stable version {stable}"
        todo = "push the candidate again to get a new number, or change the model in the settings"
        raise InvalidInput("model", candidate, f"{accepted}; {todo}")
