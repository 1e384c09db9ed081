"""Output tokens a second: as given, or from a measured profile of a language model."""

from __future__ import annotations

from twoshift.cli.plan.curves import chosen_curve
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.policy.plan.decode import decode_within

__all__ = ["check_one", "replica_rate"]


def replica_rate(tokens_per_s: float | None, profile: str | None, tpot_s: float) -> float:
    """Of a replica that holds as many sequences as keep the objective."""
    check_one(tokens_per_s, profile)
    if profile is None:
        return tokens_per_s or 0.0
    return decode_within(chosen_curve(None, None, profile, None).cost, tpot_s).tokens_per_s


def check_one(tokens_per_s: float | None, profile: str | None) -> None:
    """Raises InvalidInput where the rate is told twice, or not."""
    if tokens_per_s is None and profile is None:
        raise InvalidInput("tokens_per_s", None, "either --tokens-per-s, or --profile of a language model")
    if tokens_per_s is not None and profile is not None:
        raise Inapplicable("tokens_per_s", tokens_per_s, "with --profile: use only one of the two")
