"""What was predicted, what came, and how good the predictions were."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import InvalidInput
from twoshift.policy.calibration import calibrate
from twoshift.prediction_ports import KINDS, Prediction
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls, owner_of
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import limit_of, limit_schema, query_of
from twoshift.serve.keys import Access

__all__ = ["PredictionDesk", "PredictionList", "add_predictions"]

_ANSWER_S = 8.0
_DEFAULT, _MOST = 200, 1000
_encoder = msgspec.json.Encoder()


class PredictionDesk(Protocol):
    """Who keeps them; its calls are made in threads."""

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]: ...


class PredictionView(msgspec.Struct, kw_only=True):
    """A predicted value, and the value that was measured later."""

    kind: str
    subject: str  # the id of the job or rollout
    model: str
    what: str
    unit: str
    predicted: float
    measured: float
    low: float | None  # one of ten lies below it, one of ten above `high`; null: no range was said
    high: float | None
    at: float


class CalibrationView(msgspec.Struct, kw_only=True):
    """Accuracy of the predictions of one quantity."""

    kind: str
    what: str
    count: int
    median_ratio: float  # measured over predicted
    near_share: float  # of them: within a factor of 1.25
    ranged: int
    inside_share: float | None  # of those with a range: inside it; 0.8 is right


class PredictionList(msgspec.Struct, kw_only=True):
    """Predictions, newest first, with a summary of their accuracy."""

    object: Literal["list"] = "list"
    data: list[PredictionView]
    calibration: list[CalibrationView]


def add_predictions(app: App, desk: PredictionDesk) -> None:
    """The path /v1/predictions."""
    threads = BlockingCalls(_ANSWER_S, "predictions", threads=1)

    async def face(exchange: Exchange) -> Reply:
        asked = query_of(exchange.request, ("limit", "kind"))
        kind = asked.get("kind")
        if kind is not None and kind not in KINDS:
            raise InvalidInput("kind", kind, f"one of {', '.join(KINDS)}")
        found = await threads.ask(desk.list, limit_of(asked, _DEFAULT, _MOST), kind, owner_of(exchange))
        return Reply(200, _encoder.encode(_told(found)))

    about = Operation(
        "Compare predictions for jobs, rollouts and scaling decisions with the measured values; "
        "an admin key sees all tenants.",
        PredictionList, ErrorReply, statuses=(400, 403, 503),
        query={"limit": limit_schema(_DEFAULT, _MOST), "kind": {"type": "string", "enum": list(KINDS)}},
    )  # fmt: skip
    app.add("GET", "/v1/predictions", face, told_openai, about, needs=Access.KEY)


def _told(found: list[Prediction]) -> PredictionList:
    views = [
        PredictionView(
            kind=each.kind, subject=each.subject, model=each.model, what=each.what, unit=each.unit,
            predicted=each.predicted, measured=each.measured, low=each.low, high=each.high, at=each.at_unix_s,
        )
        for each in found
    ]  # fmt: skip
    summary = [
        CalibrationView(
            kind=each.kind, what=each.what, count=each.count, median_ratio=each.median_ratio,
            near_share=each.near_share, ranged=each.ranged, inside_share=each.inside_share,
        )
        for each in calibrate(found)
    ]  # fmt: skip
    return PredictionList(data=views, calibration=summary)
