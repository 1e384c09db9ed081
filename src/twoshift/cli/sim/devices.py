"""The device that a simulation is about: a line from the command line or a measured profile, and its traffic."""

from __future__ import annotations

import json
import urllib.parse
from dataclasses import replace
from typing import TYPE_CHECKING

from twoshift.cli.files import read_text
from twoshift.cli.plan.curves import chosen_curve
from twoshift.cli.server import server_at
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost

if TYPE_CHECKING:
    from twoshift.sim.served import ServedCurves
    from twoshift.sim.traffic import Arrivals

__all__ = ["chosen_device", "chosen_server", "read_trace"]


def read_trace(path: str | None, scale: float = 1.0) -> Arrivals | None:
    """The arrivals in the file, if one is named, with rows that many times as long."""
    if path is None:
        return None
    from twoshift.sim.traffic import parse_trace

    return parse_trace(read_text(path, "--trace", "a CSV file").splitlines(), "--trace").scaled(scale)


def chosen_server(source: str) -> ServedCurves:
    """What a server says of itself: one that runs, or what it said, in a file."""
    from twoshift.sim.served import read_served

    if not source.startswith(("http://", "https://")):
        text = read_text(source, "--server", "the URL of a server, or a file with the reply of GET /v1/derived/{model}")
        try:
            return read_served(json.loads(text), "--server")
        except (ValueError, RecursionError):
            raise InvalidInput("--server", source, "a JSON file with the reply of GET /v1/derived/{model}") from None
    address, _, model = source.partition("/v1/derived/")
    server = server_at(address)
    if not model:
        served = [each["id"] for each in server.get("/v1/models")["data"]]
        if len(served) != 1:
            at = f"{address.rstrip('/')}/v1/derived/NAME"
            accepted = f"a server with one model, or {at}, where NAME is one of {', '.join(served)}"
            raise InvalidInput("--server", source, accepted)
        model = served[0]
    return read_served(server.get(f"/v1/derived/{urllib.parse.quote(model, safe='')}"), "--server")


def chosen_device(
    overhead_ms: float | None, item_ms: float | None, profile: str | None, trace: Arrivals | None
) -> tuple[CallCost, int]:
    """A cost curve and the tokens of a mean row. With a trace, --item-ms is what a row of mean length adds."""
    if profile is None:
        overhead_ms = 4.0 if overhead_ms is None else overhead_ms
        item_ms = 0.25 if item_ms is None else item_ms
    source = chosen_curve(overhead_ms, item_ms, profile, None)
    if trace is None:
        return source.cost, max(1, round(source.row.tokens))
    mean_tokens = max(1, round(float(trace.tokens.mean())))
    if source.row.tokens > 1:
        return source.cost, mean_tokens
    # A curve over rows knows no tokens: a row of the trace's mean length costs what its row did.
    per_token_s, per_square_s = source.cost.per_token_s / mean_tokens, source.cost.per_square_s / mean_tokens**2
    return replace(source.cost, per_token_s=per_token_s, per_square_s=per_square_s), mean_tokens
