"""The device that a simulation is about: a line from the command line or a measured profile, and its traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twoshift.cli.files import read_text
from twoshift.cli.plan.curves import chosen_curve
from twoshift.policy.cost import CallCost

if TYPE_CHECKING:
    from twoshift.sim.traffic import Arrivals

__all__ = ["chosen_device", "read_trace"]


def read_trace(path: str | None) -> Arrivals | None:
    """The arrivals in the file, if one is named."""
    if path is None:
        return None
    from twoshift.sim.traffic import parse_trace

    return parse_trace(read_text(path, "--trace", "a CSV file").splitlines(), "--trace")


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
