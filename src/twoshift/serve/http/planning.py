"""The planner over HTTP: what a workload costs on a device, by the policy that the command line asks, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.serve.deployments import Deployment
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.http.paging import strict_query
from twoshift.serve.keys import Access
from twoshift.serve.plan_settings import plan_fields, read_plan
from twoshift.serve.planning import make_plan, plan_data
from twoshift.serve.served_curves import ServedCurves

__all__ = ["add_planning"]

_ANSWER_S = 5.0
_encoder = msgspec.json.Encoder()


def add_planning(app: App, models: Mapping[str, Deployment]) -> None:
    """The path /v1/plan."""
    threads = BlockingCalls(_ANSWER_S, "plans", threads=1)  # nobody's live request waits for it

    async def face(exchange: Exchange) -> Reply:
        settings = read_plan(strict_query(exchange.request))
        curves = ServedCurves(models, exchange.caller)
        return Reply(200, await threads.ask(lambda: _encoder.encode(plan_data(make_plan(settings, curves)))))

    query = {
        name: {"type": "string", "description": f"{each.setting.about} {each.setting.value.plain}".strip()}
        for name, each in plan_fields().items()
    }
    about = Operation(
        "Plan a workload: show the cost per million rows and tokens, the best batch size, memory and roofline.",
        dict[str, Any], ErrorReply, statuses=(400, 503), query=query,
    )  # fmt: skip
    app.add("GET", "/v1/plan", face, told_openai, about, needs=Access.KEY)
