"""A request over rows to its reply, whichever endpoint it came to."""

from __future__ import annotations

from typing import Any

from twoshift.endpoints.facts import EndpointCall, ModelFacts
from twoshift.endpoints.known import with_request_field
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import InvalidInput
from twoshift.serve.deployments import Deployment, columns_of
from twoshift.serve.http.app import Exchange
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import ASKING, Operation
from twoshift.serve.keyed import Asked, RequestKeys
from twoshift.serve.keys_of import ask
from twoshift.serve.service import Service

__all__ = ["answered", "asking", "facts_of"]


def asking(summary: str, takes: Any, gives: Any, fails: Any = ErrorReply) -> Operation:
    """What such a route takes and gives."""
    return Operation(summary, gives, fails, takes, statuses=ASKING, timed=True, spare_nulls=True)


def facts_of(model: Deployment) -> ModelFacts:
    """What a request's form depends on; the same until the model's outputs or its largest request change."""
    outputs, most_rows, serving = model.outputs, model.most_rows, model.serving
    known = None if serving is None else serving.facts
    if known is not None and known[0] is outputs and known[1].most_rows == most_rows:
        return known[1]
    sizes = {tensor.name: tensor.shape[0] for tensor in outputs if tensor.shape}
    info = model.info
    found = ModelFacts(
        model.name,
        columns_of(model),
        sizes,
        most_rows,
        info.max_row_tokens,
        info.prompts,
        info.inputs,
        info.classes,
    )
    if serving is not None:
        serving.facts = (outputs, found)
    return found


async def answered(
    service: Service,
    exchange: Exchange,
    model: Deployment,
    call: EndpointCall,
    endpoint: str,
    keys: RequestKeys | None = None,
) -> Reply:
    """The model's answer, or one that is there already; errors name fields as a request to that endpoint has them."""
    request = exchange.request
    asked = Asked(call.rows, keys, exchange.timeout_s, request.arrived_s, exchange.caller, request.visit)
    try:
        answer = await ask(service, model, asked)
    except InvalidInput as error:
        raise with_request_field(endpoint, error) from error
    exchange.answer = answer
    return Reply(200, call.reply(answer.rows, answer.tokens))
