"""Versions over HTTP: which answers for a deployment, a new one beside it, and what becomes of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from twoshift.decodable import decodable
from twoshift.endpoints.json_body import decoded
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import InvalidInput, NotFound
from twoshift.policy.answer_differences import DifferenceSummary
from twoshift.rollout_ports import RolloutEvent, RolloutRecord
from twoshift.serve.deployments import Deployment, Deployments
from twoshift.serve.evidence_curve import EvidencePoint
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls, refuse_pages
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import limit_of, query_of
from twoshift.serve.keys import ANYONE, Access
from twoshift.serve.rollouts import DeployRequest

__all__ = ["RolloutDesk", "add_deployments"]

_MOST_LISTED = 1000
_ANSWER_S, _DEPLOY_S = 8.0, 60.0  # the registry is asked for a new version, wherever it lies
_STATUSES = (400, 403, 404, 413, 503)


class RolloutDesk(Protocol):
    """Who tries versions. Calls take a while: they are made in threads."""

    def deploy(self, asked: DeployRequest, who: str = "") -> RolloutRecord: ...

    def list(self, limit: int = 100, deployment: str | None = None) -> list[RolloutRecord]: ...

    def get(self, rollout: str) -> RolloutRecord: ...

    def events(self, rollout_id: str) -> list[RolloutEvent]: ...

    def differences(self, rollout_id: str) -> DifferenceSummary | None: ...

    def evidence(self, rollout_id: str) -> list[EvidencePoint]: ...

    def ask(self, rollout: str, what: str, who: str = "", why: str = "") -> RolloutRecord: ...


class CandidateView(msgspec.Struct, kw_only=True):
    """A version under test, and its share of the live requests."""

    version: str
    model: str
    share: float


class DeploymentView(msgspec.Struct, kw_only=True):
    """A model name that clients use, and the versions that serve it."""

    object: Literal["deployment"] = "deployment"
    name: str
    state: str
    reason: str
    version: str
    model: str | None  # null: nothing answers
    candidate: CandidateView | None = None


class DeploymentList(msgspec.Struct, kw_only=True):
    """Deployments, sorted by name."""

    object: Literal["list"] = "list"
    data: list[DeploymentView]


@decodable
class DeployedVersion(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of PUT /v1/deployments/{deployment}."""

    model: str  # NAME:4 or NAME@alias
    mode: Literal["canary", "shadow", "now", "replace"] = "canary"
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None  # to begin with, without a shadow


class EventView(msgspec.Struct):
    """A decision of a rollout, with the figures on which the decision is based."""

    at: float
    text: str
    figures: tuple[str, ...]


class DifferenceView(msgspec.Struct, kw_only=True):
    """Distribution of the differences between the answers of two versions; a difference is from 0 (equal) to 1."""

    rows: int
    mean: float
    p50: float
    p99: float
    worst: float
    bound: float
    share_above: float


class EvidenceView(msgspec.Struct):
    """Evidence that the candidate is worse, by criterion. A sum of 1/alpha or more rolls the candidate back."""

    at: float
    share: float
    evidence: dict[str, float]


class RolloutView(msgspec.Struct, kw_only=True):
    """A rollout of a candidate; `leader` is the server that decides about the rollout."""

    object: Literal["rollout"] = "rollout"
    id: str
    deployment: str
    stable: str
    candidate: str
    mode: str
    stage: str
    share: float
    paused: bool
    reason: str
    who: str
    leader: str
    created_at: float
    updated_at: float
    settings: dict[str, Any]
    events: list[EventView] | UnsetType = UNSET
    differences: DifferenceView | UnsetType = UNSET
    evidence: list[EvidenceView] | UnsetType = UNSET


class RolloutList(msgspec.Struct, kw_only=True):
    """Rollouts, newest first."""

    object: Literal["list"] = "list"
    data: list[RolloutView]


@decodable
class AskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Reason for a promotion, rollback, pause or resume."""

    reason: str = ""


_encoder = msgspec.json.Encoder()
_deploys, _puts, _asks = (msgspec.json.Decoder(each) for each in (DeployRequest, DeployedVersion, AskRequest))


def add_deployments(app: App, models: Deployments, desk: RolloutDesk | NoJobs) -> None:
    """The paths below /v1/deployments and /v1/rollouts."""
    face, one, rollout = _Deployments(models, desk), "/v1/deployments/{deployment}", "/v1/rollouts/{rollout}"
    for method, path, answer, about in (
        ("GET", "/v1/deployments", face.deployments, _about("List deployments with their versions.", DeploymentList)),
        ("GET", one, face.deployment, _about("Show a deployment and its versions.", DeploymentView)),
        ("GET", "/v1/rollouts", face.rollouts, _about("List the newest rollouts.", RolloutList)),
        ("GET", rollout, face.rollout, _about("Show a rollout, or the newest rollout of a deployment.", RolloutView)),
    ):  # fmt: skip
        app.add(method, path, answer, told_openai, about, needs=Access.KEY)
    for method, path, answer, about in (
        ("POST", "/v1/deployments", face.deploy,
         _about("Deploy a new version: load it beside the stable version, compare both, "
                "then promote or roll back the new version.",
                RolloutView, DeployRequest)),
        ("PUT", one, face.put, _about("Deploy a new version to this deployment.", RolloutView, DeployedVersion)),
        *((
            "POST", f"{rollout}/{what}", face.asking(what),
            Operation(told, RolloutView, ErrorReply, AskRequest, statuses=_STATUSES, may_be_empty=True),
        ) for what, told in (
            ("promote", "Promote the candidate now, regardless of the evidence."),
            ("rollback", "Roll the candidate back now."),
            ("pause", "Pause a rollout: the share of the candidate stays the same until the rollout is resumed."),
            ("resume", "Resume a paused rollout."),
        )),
    ):  # fmt: skip
        app.add(method, path, answer, told_openai, about, needs=Access.DEPLOY)


def _about(summary: str, gives: Any, takes: Any = None) -> Operation:
    return Operation(summary, gives, ErrorReply, takes, statuses=_STATUSES)


class _Deployments:
    def __init__(self, models: Deployments, desk: RolloutDesk | NoJobs) -> None:
        self._models, self._desk = models, desk
        self._quick, self._slow = BlockingCalls(_ANSWER_S, "rollouts"), BlockingCalls(_DEPLOY_S, "deployments")

    async def deployments(self, exchange: Exchange) -> Reply:
        mine = exchange.caller.models
        found = [each for name, each in self._models.all.items() if not mine or name in mine]
        return _reply(DeploymentList(data=[_deployment_view(each) for each in found]))

    async def deployment(self, exchange: Exchange) -> Reply:
        name, known = exchange.matched["deployment"], self._models.all
        exchange.caller.check_model(name)
        if name not in known:
            raise NotFound("deployment", name, f"one of these deployments: {', '.join(sorted(known))}")
        return _reply(_deployment_view(known[name]))

    async def deploy(self, exchange: Exchange) -> Reply:
        return await self._deployed(exchange, await exchange.read(decoded, _deploys, exchange.request.body))

    async def put(self, exchange: Exchange) -> Reply:
        asked = await exchange.read(decoded, _puts, exchange.request.body)
        named = exchange.matched["deployment"]
        made = DeployRequest(model=asked.model, deployment=named, mode=asked.mode, share=asked.share)
        return await self._deployed(exchange, made)

    async def rollouts(self, exchange: Exchange) -> Reply:
        asked = query_of(exchange.request, ("limit", "deployment"))
        limit, mine = limit_of(asked, 100, _MOST_LISTED), exchange.caller.models
        found = await self._quick.ask(self._desk.list, limit, asked.get("deployment"))
        return _reply(RolloutList(data=[_view(each) for each in found if not mine or each.deployment in mine]))

    async def rollout(self, exchange: Exchange) -> Reply:
        shown = await self._quick.ask(self._shown, exchange.matched["rollout"])
        exchange.caller.check_model(shown.deployment)
        return _reply(shown)

    def asking(self, what: str) -> Callable[[Exchange], Any]:
        """A face over one rollout."""

        async def face(exchange: Exchange) -> Reply:
            refuse_pages(exchange)
            asked = await exchange.read(decoded, _asks, exchange.request.body or b"{}")
            record = await self._quick.ask(self._desk.get, exchange.matched["rollout"])
            exchange.caller.check_model(record.deployment)
            given = (record.id, what, _who(exchange), asked.reason)
            return _reply(_view(await self._quick.ask(self._desk.ask, *given)))

        return face

    async def _deployed(self, exchange: Exchange, asked: DeployRequest) -> Reply:
        refuse_pages(exchange)
        if exchange.caller.models:
            if asked.deployment is None:
                raise InvalidInput(
                    "deployment", None, "the name of the deployment, because this key may use only some deployments"
                )
            exchange.caller.check_model(asked.deployment)
        return _reply(_view(await self._slow.ask(self._desk.deploy, asked, _who(exchange))))

    def _shown(self, rollout: str) -> RolloutView:
        record = self._desk.get(rollout)
        view, differences = _view(record), self._desk.differences(record.id)
        view.events = [EventView(each.at_unix_s, each.text, each.figures) for each in self._desk.events(record.id)]
        view.evidence = [EvidenceView(at, share, evidence) for at, share, evidence in self._desk.evidence(record.id)]
        if differences is not None:
            view.differences = DifferenceView(**dataclasses.asdict(differences))
        return view


def _who(exchange: Exchange) -> str:
    return "" if exchange.caller is ANYONE else exchange.caller.name


def _deployment_view(each: Deployment) -> DeploymentView:
    split, serving = each.split, each.serving
    made = DeploymentView(
        name=each.name,
        state=str(each.state),
        reason=each.reason,
        version=each.version,
        model=None if serving is None else serving.backend.info.model,
    )
    if split is not None:
        version, model = split.candidate.version, split.candidate.backend.info.model
        made.candidate = CandidateView(version=version, model=model, share=split.share)
    return made


def _view(record: RolloutRecord) -> RolloutView:
    return RolloutView(
        id=record.id,
        deployment=record.deployment,
        stable=record.stable,
        candidate=record.candidate,
        mode=record.mode,
        stage=record.stage,
        share=record.share,
        paused=record.paused,
        reason=record.reason,
        who=record.who,
        leader=record.leader,
        created_at=record.created_unix_s,
        updated_at=record.updated_unix_s,
        settings=record.settings,
    )


def _reply(view: Any) -> Reply:
    return Reply(200, _encoder.encode(view))
