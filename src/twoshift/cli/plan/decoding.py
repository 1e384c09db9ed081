"""Output tokens a second: as given, or from a measured profile of a language model."""

from __future__ import annotations

from twoshift.cli.plan.curves import chosen_curve
from twoshift.errors import InvalidInput
from twoshift.policy.plan.decode import DecodeRate, decode_rate, decode_within

__all__ = ["device_rate", "replica_rate"]

_SEQUENCES = 16


def device_rate(tokens_per_s: float | None, profile: str | None, sequences: int | None) -> DecodeRate | float:
    """Of a device: measured, where it decodes so many sequences at once, or as given.

    Raises InvalidInput where it is told twice, or not.
    """
    _check_one(tokens_per_s, profile)
    if profile is None:
        if sequences is not None:
            raise InvalidInput("sequences", sequences, "no value without --profile")
        return tokens_per_s or 0.0
    return decode_rate(chosen_curve(None, None, profile, None).cost, sequences or _SEQUENCES)


def replica_rate(tokens_per_s: float | None, profile: str | None, tpot_s: float) -> float:
    """Of a replica that holds as many sequences as keep the objective."""
    _check_one(tokens_per_s, profile)
    if profile is None:
        return tokens_per_s or 0.0
    return decode_within(chosen_curve(None, None, profile, None).cost, tpot_s).tokens_per_s


def _check_one(tokens_per_s: float | None, profile: str | None) -> None:
    if (tokens_per_s is None) == (profile is None):
        raise InvalidInput("tokens_per_s", tokens_per_s, "either --tokens-per-s, or --profile of a language model")
