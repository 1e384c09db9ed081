"""`plan tokens`: dollars per million tokens, and what each lever does to them."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, given_of, usd, with_settings
from twoshift.cli.plan.app import app
from twoshift.cli.plan.decoding import check_one
from twoshift.cli.plan.token_rates import TokenRates, rates_on
from twoshift.cli.plan.token_settings import TokenSettings
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.policy.cost import CallCost
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

_OVERLAP = (
    "The savings are multiplied. On a real device they overlap: a full batch leaves less for quantisation to gain."
)
_ADVICE = {  # by the number of levers
    0: "Add options such as --padding, --spot-discount or --quantisation to see what each optimisation would save.",
    1: "",
}


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
@with_settings(TokenSettings)
def tokens_command(
    price: Annotated[float, usd("Price of the device in dollars per hour.")],
    *,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Compute tokens per second by number of sequences, and dollars per million tokens with each optimisation."""
    settings = TokenSettings(**given_of(TokenSettings, given))
    rates = _rates(settings, price)
    tokens_per_s = settings.tokens_per_s or 0.0 if rates is None else rates.best.output_tokens_per_s
    made = plan_tokens(tokens_per_s, price, settings.utilisation, _levers(settings))
    rows = [["now", pretty(made.usd_per_million_tokens), "", ""]]
    effects = [*made.levers, made.together] if made.levers else []
    rows += [[e.lever, pretty(e.usd_per_million_tokens), f"{e.saving:.1%}", e.why] for e in effects]
    prices = "$ per M tokens" if rates is None else "$ per M output tokens, prompts included"
    show(
        as_json,
        {**plain(made), "tokens_per_s": tokens_per_s, **_rates_data(rates)},
        *([] if rates is None else [rates.words, rates.shown()]),
        table(["<optimisation", prices, "saves", "<why"], rows),
        _ADVICE.get(len(made.levers), _OVERLAP),
    )


def _rates(settings: TokenSettings, price: float) -> TokenRates | None:
    if settings.device is None:
        check_one(settings.tokens_per_s, settings.profile)
    if settings.profile is not None or settings.device is not None:
        return rates_on(settings, price)
    if settings.sequences is not None:
        raise Inapplicable("sequences", settings.sequences, "without --profile or --device")
    return None


def _levers(settings: TokenSettings) -> list[Lever]:
    found = (
        _batch(settings),
        _quantisation(settings.quantisation, settings.quantisation_speedup),
        _model(settings.params, settings.to_params, is_sized=settings.device is not None),
        None if settings.padding is None else padding_lever(settings.padding),
        None if settings.spot_discount is None else spot_lever(settings.spot_discount),
    )
    return [lever for lever in found if lever is not None]


def _rates_data(rates: TokenRates | None) -> dict[str, Any]:
    if rates is None:
        return {"sequences": None}
    memory = None if rates.memory is None else plain(rates.memory)
    rows = [plain(each) for each in rates.rows]
    return {"sequences": rates.best.sequences, "table": rows, "bounds": list(rates.bounds), "memory": memory}


def _batch(settings: TokenSettings) -> Lever | None:
    given = {name: getattr(settings, name) for name in ("overhead_ms", "item_ms", "batch_from", "batch_to")}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        accepted = "a value; a comparison of batch sizes needs --overhead-ms, --item-ms, --batch-from and --batch-to"
        raise InvalidInput(missing[0], None, accepted)
    cost = CallCost.line(given["overhead_ms"] / 1e3, given["item_ms"] / 1e3)
    return batch_lever(cost, given["batch_from"], given["batch_to"])


def _quantisation(precision: str | None, speedup: float | None) -> Lever | None:
    if precision is None and speedup is not None:
        raise InvalidInput(
            "quantisation", None, f"{' or '.join(QUANTISATION_SPEEDUP)}, because --quantisation-speedup is set"
        )
    return None if precision is None else quantisation_lever(precision, speedup)


def _model(params: float | None, to_params: float | None, is_sized: bool) -> Lever | None:
    if to_params is None and (params is None or is_sized):
        return None
    if params is None or to_params is None:
        missing = "params" if params is None else "to_params"
        raise InvalidInput(missing, None, "a value; a comparison with a smaller model needs --params and --to-params")
    return model_lever(params, to_params)
