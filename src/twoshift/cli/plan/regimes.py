"""`plan regime`: online, interactive, micro-batch, batch or hybrid."""

from __future__ import annotations

from typing import Annotated

import typer

from twoshift.cli.commands import command
from twoshift.cli.output import plain, show, table
from twoshift.cli.params import JsonFlag, duration, millis, share
from twoshift.cli.plan.app import app
from twoshift.errors import InvalidInput
from twoshift.policy.plan.regime import RegimeAsk, plan_regime

__all__ = ["regime_command"]


@command(
    app,
    "regime",
    "twoshift plan regime --waiting --not-known --p99-ms 80",
    fields={"p99_s": "p99_ms", "ttft_s": "ttft_ms", "freshness_s": "freshness"},
)
def regime_command(
    waiting: Annotated[
        bool | None, typer.Option("--waiting/--nobody-waiting", help="Whether a caller waits for each answer.")
    ] = None,
    known: Annotated[
        bool | None,
        typer.Option("--known/--not-known", help="Whether the whole input is known before processing starts."),
    ] = None,
    p99_ms: Annotated[float | None, millis("Objective for the p99 latency, in milliseconds.")] = None,
    ttft_ms: Annotated[
        float | None, millis("Objective for the time to the first token, in milliseconds.", "--ttft-ms", "--ttft")
    ] = None,
    freshness: Annotated[float | None, duration("Maximum age of a result when it is read.")] = None,
    precomputable: Annotated[float, share("Share of answers that can be computed in advance.")] = 0.0,
    as_json: JsonFlag = False,
) -> None:
    """Recommend how to run a workload: online, interactive, in micro-batches, in batches, or hybrid."""
    if waiting is None:
        # A latency objective says that somebody waits; a known corpus alone says that nobody does.
        waiting = True if p99_ms is not None or ttft_ms is not None else (False if known or freshness else None)
    if waiting is None:
        raise InvalidInput("waiting", None, "--waiting or --nobody-waiting, or a latency objective such as --p99-ms 80")
    ask = RegimeAsk(
        waiting,
        bool(known),
        None if p99_ms is None else p99_ms / 1e3,
        None if ttft_ms is None else ttft_ms / 1e3,
        freshness,
        precomputable,
    )
    made = plan_regime(ask)
    rows = [
        ["regime", made.regime.value],
        ["reason", made.deciding_property],
        ["hardware", made.hardware],
        ["lane", made.lane.value],
        ["command", made.command],
    ]
    show(as_json, {**plain(made), "waiting": waiting, "known": bool(known)}, table(["<", "<"], rows))
