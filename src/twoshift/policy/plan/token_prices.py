"""Dollars per million input tokens and per million output tokens, from one total cost."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TokenPrices", "token_prices"]


class TokenPrices(NamedTuple):
    """Prices of tokens; None if unknown."""

    input: float | None
    output: float | None


def token_prices(usd: float | None, output_share: float, input_tokens: float, output_tokens: float) -> TokenPrices:
    """`output_share` is the share of the device time that was for tokens that were generated; the rest read prompts.

    Tokens of a prompt that were in the cache took no time, and make the others cheaper: the prices give back the sum.
    """
    if usd is None or not output_tokens:
        return TokenPrices(None, None)
    of_output = usd * min(1.0, max(0.0, output_share))
    return TokenPrices(
        1e6 * (usd - of_output) / input_tokens if input_tokens else None, 1e6 * of_output / output_tokens
    )
