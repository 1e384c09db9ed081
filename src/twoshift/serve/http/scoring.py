"""Rows of named values over HTTP: scored, and what a model's rows have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from twoshift.endpoints.known import SCORE, told_openai
from twoshift.endpoints.score import ScoreCall, read_score
from twoshift.endpoints.types import ErrorReply, FeatureTold, ScoreModel, ScoreReply, ScoreRequest
from twoshift.errors import Denied, InvalidInput, Late, TryLater
from twoshift.serve.deployments import columns_of
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.row_calls import answered, asking, facts_of
from twoshift.serve.keys import Access
from twoshift.serve.keys_of import row_keys
from twoshift.serve.oip.rows import declared_inputs
from twoshift.serve.service import Service
from twoshift.types import Tensor

__all__ = ["add_scoring"]

_encoder = msgspec.json.Encoder()
_TOLD = (InvalidInput, TryLater, Late, Denied)  # no model has failed


def _wrong_kind(rows: Sequence[Mapping[str, Any]], declared: Sequence[Tensor]) -> InvalidInput | None:
    """What is wrong with the first row that has a text for a number; None where none has."""
    numbers = [each.name for each in declared if each.dtype != "text" and not each.shape]
    for place, row in enumerate(rows):
        for name in numbers:
            if isinstance(row.get(name), str):
                return InvalidInput(f"rows[{place}].{name}", row[name], "a number")
    return None


def add_scoring(app: App, service: Service) -> None:
    """/v1/score and /v1/score/{model}."""

    async def score(exchange: Exchange) -> Reply:
        named = exchange.matched.get("model")
        asked = await exchange.read(read_score, exchange.request.body)
        if named is not None and asked.model not in (None, named):
            raise InvalidInput("model", asked.model, f"{named} (the model in the URL), or a body without `model`")
        model = exchange.model = exchange.routed(service.find_or_only(named or asked.model))
        call = await exchange.read(ScoreCall, asked, facts_of(model))
        try:
            return await answered(service, exchange, model, call, SCORE, row_keys(service, model, asked.rows))
        except Exception as error:  # a model's own code may have met a text where its example has a number
            wrong = None if isinstance(error, _TOLD) else _wrong_kind(asked.rows, declared_inputs(model.info))
            if wrong is None:
                raise
            raise wrong from error

    async def about(exchange: Exchange) -> Reply:
        model = service.find(exchange.matched["model"])
        info = model.info
        types = {each.name: each.dtype for each in declared_inputs(info)}
        number = next(iter(types.values()), "float64")  # of a matrix: the type of each of its values
        features = [FeatureTold(name, types.get(name, number)) for name in info.features or types]
        classes = {name: list(names) for name, names in info.classes.items()}
        return Reply(200, _encoder.encode(ScoreModel(model.name, features, list(columns_of(model)), classes)))

    scoring = asking("Score rows of named values.", ScoreRequest, ScoreReply)
    for path in (SCORE, f"{SCORE}/{{model}}"):
        app.add("POST", path, score, told_openai, scoring, needs=Access.SERVE, kind=RouteKind.GATED)
    told = Operation(
        "List a model's input features in order, its outputs and its classes.", ScoreModel, ErrorReply, statuses=(404,)
    )
    app.add("GET", f"{SCORE}/{{model}}", about, told_openai, told, needs=Access.SERVE)
