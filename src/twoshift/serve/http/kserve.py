"""KServe's first protocol: POST /v1/models/{model}:predict."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from twoshift.endpoints.json_body import asked_of
from twoshift.errors import InvalidInput
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.oip import told_oip
from twoshift.serve.http.oip_types import OipError
from twoshift.serve.http.row_calls import asking
from twoshift.serve.keyed import Asked
from twoshift.serve.keys import Access
from twoshift.serve.keys_of import ask, row_keys
from twoshift.serve.oip.instances import predictions_of, rows_of
from twoshift.serve.service import Service

__all__ = ["add_kserve"]


class PredictRequest(Struct, forbid_unknown_fields=True):
    """Body of POST /v1/models/{model}:predict."""

    instances: Annotated[list[Any], Meta(extra_json_schema={"minItems": 1})]
    signature_name: str | None = None  # as TensorFlow Serving has it; there is one


class PredictReply(Struct):
    """Predictions, in the order of the instances."""

    predictions: list[Any]


_requests, _encoder = msgspec.json.Decoder(PredictRequest), msgspec.json.Encoder()


def add_kserve(app: App, service: Service) -> None:
    """To be added before /v1/models/{model}, which would match as well."""

    async def predict(exchange: Exchange) -> Reply:
        model = exchange.model = exchange.routed(service.find(exchange.matched["model"]))
        asked: PredictRequest = await exchange.read(asked_of, _requests, exchange.request.body)
        if not asked.instances:
            raise InvalidInput("instances", [], "at least one instance")
        request, rows = exchange.request, await exchange.read(rows_of, model.info, asked.instances)
        keys = row_keys(service, model, [each if isinstance(each, dict) else {} for each in asked.instances])
        whole = Asked(rows, keys, exchange.timeout_s, request.arrived_s, exchange.caller, request.visit)
        answer = await ask(service, model, whole)
        exchange.answer = answer
        return Reply(200, _encoder.encode(PredictReply(predictions_of(answer.rows))))

    about = asking("Run inference in KServe's V1 protocol.", PredictRequest, PredictReply, OipError)
    app.add("POST", "/v1/models/{model}:predict", predict, told_oip, about, needs=Access.SERVE, kind=RouteKind.GATED)
