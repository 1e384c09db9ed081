"""Precomputed answers by key alone: nothing is computed."""

from __future__ import annotations

import time

import msgspec

from twoshift.endpoints.json_body import asked_of
from twoshift.endpoints.known import told_openai
from twoshift.endpoints.score import plain
from twoshift.endpoints.types import LookupReply, LookupRequest, LookupRow
from twoshift.errors import Disabled, InvalidInput, TooLarge
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.row_calls import asking
from twoshift.serve.keyed import Found, LookedUp, RequestKeys
from twoshift.serve.keys import Access
from twoshift.serve.model import Answer
from twoshift.serve.service import Service
from twoshift.serve.stages import Stages

__all__ = ["add_lookup"]

LOOKUP = "/v1/lookup"
_MOST_KEYS = 10_000
_requests, _encoder = msgspec.json.Decoder(LookupRequest), msgspec.json.Encoder()


def _told(key: int | str, looked: LookedUp, place: int) -> LookupRow:
    age_s = round(looked.age_s, 3) if looked.found in (Found.HIT, Found.STALE) else None
    row = looked.row
    outputs = None if row is None else {name: plain(row[name], name, place) for name in row.columns}
    return LookupRow(key=key, found=str(looked.found), age_s=age_s, outputs=outputs)


def _answer(looked: list[LookedUp], began_s: float, arrived_s: float, version: str) -> Answer:
    """For the headers that every answer has, and for the books."""
    now_s = time.monotonic()
    stages = Stages(admit=max(0.0, began_s - arrived_s), lookup=now_s - began_s, finish=-now_s)
    hits = [each for each in looked if each.row is not None]
    age_s = max((each.age_s for each in hits), default=0.0)
    return Answer([each.row for each in hits if each.row is not None], 0, 0, stages, version, "precomputed", age_s)


def add_lookup(app: App, service: Service) -> None:
    """/v1/lookup."""

    async def lookup(exchange: Exchange) -> Reply:
        asked = await exchange.read(lambda body: asked_of(_requests, body), exchange.request.body)
        model = exchange.model = exchange.routed(service.find_or_only(asked.model))
        by_key = service.precomputed(model.name)
        if by_key is None:
            raise Disabled(f"look-ups with {model.name}", "start the server with --precomputed and --key")
        if not asked.keys:
            raise InvalidInput("keys", [], "at least one key")
        if len(asked.keys) > _MOST_KEYS:
            raise TooLarge("keys", f"{len(asked.keys):,} keys", f"at most {_MOST_KEYS:,} keys in a request")
        began_s = time.monotonic()
        with service.inside(model, exchange.caller) as serving:
            looked = await by_key.look_up(RequestKeys(asked.keys, "keys[{}]"), None, model)
        exchange.answer = _answer(looked, began_s, exchange.request.arrived_s, serving.version)
        rows = [_told(key, each, place) for place, (key, each) in enumerate(zip(asked.keys, looked, strict=True))]
        classes = {name: list(names) for name, names in model.info.classes.items()}
        return Reply(200, _encoder.encode(LookupReply(model.name, rows, classes)))

    about = asking("Look up precomputed answers by key; nothing is computed.", LookupRequest, LookupReply)
    app.add("POST", LOOKUP, lookup, told_openai, about, needs=Access.SERVE, kind=RouteKind.GATED)
