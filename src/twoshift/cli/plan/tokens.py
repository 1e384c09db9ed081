"""`plan tokens`: dollars per million tokens, and what each lever does to them."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, choice, count, millis, share, text, usd, whole
from twoshift.cli.plan.app import app
from twoshift.cli.plan.curves import ProfileName
from twoshift.cli.plan.decoding import check_one
from twoshift.cli.plan.devices import PRECISIONS, DeviceName
from twoshift.cli.plan.token_rates import DeviceAsk, TokenRates, rates_on
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.generation import Conversation
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
        int | None,
        whole("Number of sequences at once.", most=4096, shown="16 with --profile, as many as fit with --device"),
    ] = None,
    prompt_tokens: Annotated[
        float, count("With --profile or --device: tokens of a prompt.", least=1, shown="256")
    ] = 256,
    answer_tokens: Annotated[
        float, count("With --profile or --device: tokens of an answer.", least=1, shown="128")
    ] = 128,
    cached_tokens: Annotated[
        float, count("Tokens of a prompt, beside those, that are in the prefix cache.", zero=True)
    ] = 0.0,
    step_tokens: Annotated[
        int | None, whole("Tokens that one step reads or generates at most.", shown="8192, or 512 on a CPU")
    ] = None,
    device: DeviceName = None,
    devices: Annotated[int, whole("With --device: number of them that share the model.", most=64)] = 1,
    model: Annotated[str | None, text("With --device: read the sizes from smollm or a model folder.")] = None,
    layers: Annotated[int | None, whole("With --device and --params: number of layers.")] = None,
    kv_heads: Annotated[int | None, whole("With --device and --params: number of key-value heads.")] = None,
    head_dim: Annotated[int | None, whole("With --device and --params: dimension of one attention head.")] = None,
    precision: Annotated[str, choice("With --device: precision of weights and arithmetic.", PRECISIONS)] = "bf16",
    kv_precision: Annotated[str, choice("With --device: precision of the KV cache.", PRECISIONS)] = "bf16",
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
    params: Annotated[
        float | None, count("Number of parameters, with --device; or of the model now, with --to-params.")
    ] = None,
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
    """Compute tokens per second by sequences at once, and dollars per million tokens with each optimisation."""
    rates = None
    if device is None:
        check_one(tokens_per_s, profile)
    if profile is not None or device is not None:
        asked = Conversation(prompt_tokens, answer_tokens, cached_tokens)
        rates = rates_on(
            DeviceAsk(
                asked, price, profile, sequences, step_tokens, model, params, layers, kv_heads, head_dim,
                precision, kv_precision, device, devices,
            )
        )  # fmt: skip
        tokens_per_s = rates.best.output_tokens_per_s
    elif sequences is not None:
        raise InvalidInput("sequences", sequences, "no value without --profile or --device")
    levers = [
        lever
        for lever in (
            _batch(overhead_ms, item_ms, batch_from, batch_to),
            _quantisation(quantisation, quantisation_speedup),
            _model(params, to_params, is_sized=device is not None),
            None if padding is None else padding_lever(padding),
            None if spot_discount is None else spot_lever(spot_discount),
        )
        if lever is not None
    ]
    made = plan_tokens(tokens_per_s or 0.0, price, utilisation, levers)
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
    data = {**plain(made), "tokens_per_s": tokens_per_s, **_rates_data(rates)}
    show(
        as_json,
        data,
        *([] if rates is None else [rates.words, rates.shown()]),
        table(
            [
                "<lever",
                "$ per M tokens" if rates is None else "$ per M output tokens, prompts included",
                "saves",
                "<why",
            ],
            rows,
        ),
        words,
    )


def _rates_data(rates: TokenRates | None) -> dict[str, Any]:
    if rates is None:
        return {"sequences": None}
    memory = None if rates.memory is None else plain(rates.memory)
    rows = [plain(each) for each in rates.rows]
    return {"sequences": rates.best.sequences, "table": rows, "bounds": list(rates.bounds), "memory": memory}


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


def _model(params: float | None, to_params: float | None, is_sized: bool) -> Lever | None:
    if to_params is None and (params is None or is_sized):
        return None
    if params is None or to_params is None:
        missing = "params" if params is None else "to_params"
        raise InvalidInput(missing, None, "a value: a smaller model needs --params and --to-params")
    return model_lever(params, to_params)
