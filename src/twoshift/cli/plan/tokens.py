"""`plan tokens`: dollars per million tokens, and what each lever does to them."""

from __future__ import annotations

from typing import Annotated

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, choice, count, millis, share, usd, whole
from twoshift.cli.plan.app import app
from twoshift.cli.plan.curves import ProfileName
from twoshift.cli.plan.decoding import device_rate
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.decode import DecodeRate
from twoshift.policy.plan.tokens import (
    QUANTISATION_SPEEDUP,
    Lever,
    batch_lever,
    model_lever,
    padding_lever,
    plan_tokens,
    quantisation_lever,
    spot_lever,
)

__all__ = ["tokens_command"]


@command(
    app,
    "tokens",
    """
    twoshift plan tokens --tokens-per-s 2500 --price 3.00 --utilisation 0.5 \\
        --overhead-ms 6 --item-ms 0.18 --batch-from 8 --batch-to 64 \\
        --quantisation fp8 --params 70B --to-params 13B --padding 0.4 \\
        --spot-discount 0.6
    """,
)
def tokens_command(
    price: Annotated[float, usd("Price of the device in dollars per hour.")],
    tokens_per_s: Annotated[
        float | None, count("Tokens per second of one busy device.", "--tokens-per-s", "--tokens-per-second")
    ] = None,
    profile: ProfileName = None,
    sequences: Annotated[
        int | None, whole("With --profile: number of sequences decoded at once.", most=4096, shown="16")
    ] = None,
    utilisation: Annotated[float, share("Share of the time in which the device is busy.", zero=False)] = 1.0,
    overhead_ms: Annotated[
        float | None, millis("Fixed time of one model call; with --item-ms, compares two batch sizes.", zero=True)
    ] = None,
    item_ms: Annotated[
        float | None, millis("Time that each row adds to a model call; used with --overhead-ms.")
    ] = None,
    batch_from: Annotated[int | None, whole("Current batch size in rows per call; used with --batch-to.")] = None,
    batch_to: Annotated[int | None, whole("Larger batch size to compare with --batch-from, in rows per call.")] = None,
    quantisation: Annotated[
        str | None, choice("Quantised model: precision after quantisation.", tuple(QUANTISATION_SPEEDUP))
    ] = None,
    quantisation_speedup: Annotated[float | None, count("Quantised model: measured speed-up.")] = None,
    params: Annotated[float | None, count("Smaller model: parameters now.")] = None,
    to_params: Annotated[
        float | None,
        count(
            "Smaller model: parameters afterwards (active ones, for a mixture of experts).",
            "--to-params",
            "--active-params",
        ),
    ] = None,
    padding: Annotated[float | None, share("Less padding: share of a batch that is padding now.", one=False)] = None,
    spot_discount: Annotated[float | None, share("Spot discount, as a share of the price.", one=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute dollars per million tokens: now, with each optimisation alone, and with all of them."""
    rate = device_rate(tokens_per_s, profile, sequences)
    tokens_per_s = rate.tokens_per_s if isinstance(rate, DecodeRate) else rate
    levers = [
        lever
        for lever in (
            _batch(overhead_ms, item_ms, batch_from, batch_to),
            _quantisation(quantisation, quantisation_speedup),
            _model(params, to_params),
            None if padding is None else padding_lever(padding),
            None if spot_discount is None else spot_lever(spot_discount),
        )
        if lever is not None
    ]
    made = plan_tokens(tokens_per_s, price, utilisation, levers)
    rows = [["now", pretty(made.usd_per_million_tokens), "", ""]]
    effects = [*made.levers, made.together] if made.levers else []
    rows += [[e.lever, pretty(e.usd_per_million_tokens), f"{e.saving:.1%}", e.why] for e in effects]
    words = (
        "The savings are multiplied. On a real device they overlap: a full batch leaves less for quantisation to gain."
    )
    if len(made.levers) < 2:
        words = (
            ""
            if made.levers
            else "Add --padding, --spot-discount, --quantisation ... to see what each optimisation would save."
        )
    data = {**plain(made), "tokens_per_s": tokens_per_s, "sequences": getattr(rate, "sequences", None)}
    show(
        as_json,
        data,
        *_measured(rate, profile, utilisation),
        table(
            ["<lever", "$ per M output tokens" if isinstance(rate, DecodeRate) else "$ per M tokens", "saves", "<why"],
            rows,
        ),
        words,
    )


def _measured(rate: DecodeRate | float, profile: str | None, utilisation: float) -> list[str]:
    """What a profile says, and how it is read."""
    if not isinstance(rate, DecodeRate):
        return []
    busy = "" if utilisation == 1 else f", {utilisation:.0%} of the time"
    decoded = f"{rate.sequences:,} sequence{'' if rate.sequences == 1 else 's'} decoded at once (--sequences)"
    return [
        (
            f"{profile}: {decoded}{busy}: {pretty(rate.tokens_per_s, 3)} output tokens per second. Dollars are per "
            "output token."
        )
    ]


def _batch(overhead_ms: float | None, item_ms: float | None, start: int | None, end: int | None) -> Lever | None:
    given = {"overhead_ms": overhead_ms, "item_ms": item_ms, "batch_from": start, "batch_to": end}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if overhead_ms is None or item_ms is None or start is None or end is None:
        accepted = "a value: larger batches need --overhead-ms, --item-ms, --batch-from and --batch-to"
        raise InvalidInput(missing[0], None, accepted)
    return batch_lever(CallCost.line(overhead_ms / 1e3, item_ms / 1e3), start, end)


def _quantisation(precision: str | None, speedup: float | None) -> Lever | None:
    if precision is None and speedup is not None:
        raise InvalidInput("quantisation", None, f"one of {', '.join(QUANTISATION_SPEEDUP)}")
    return None if precision is None else quantisation_lever(precision, speedup)


def _model(params: float | None, to_params: float | None) -> Lever | None:
    if params is None and to_params is None:
        return None
    if params is None or to_params is None:
        missing = "params" if params is None else "to_params"
        raise InvalidInput(missing, None, "a value: a smaller model needs --params and --to-params")
    return model_lever(params, to_params)
