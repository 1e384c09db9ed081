"""How a new version of a model is tried and judged, as a configuration has it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from twoshift.declare import check, key
from twoshift.policy.rollout_values import RolloutSettings
from twoshift.units import parse_duration
from twoshift.values import FLAG, Value, share, span, text

__all__ = ["RolloutTable"]


def _are_shares(given: Any) -> bool:
    return all(0 < each <= 1 for each in given) and list(given) == sorted({*given})


_LADDER = Value("SHARES", plain="shares above 0 and up to 1, each larger than the one before", fits=_are_shares)
_SHADOW = (
    "Before the candidate gets live requests, compare its answers with those of the stable version, on copies of "
    "live requests in idle time."
)
_COMPARE = (
    "Custom function that returns the difference of two answers: file.py:function. Its arguments are the row, the "
    "answer of the stable version and the answer of the candidate."
)
_DIFFERENCE = "Two answers agree if their difference is at most this value, on a scale from 0 (equal) to 1."
_DISAGREEMENT = (
    "With `max_difference`: roll the candidate back if more than this share of its answers disagree with the stable "
    "version."
)


class RolloutTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a candidate is tried; every key has a default."""

    ladder: Annotated[
        tuple[float, ...],
        key("Shares of the live requests that a candidate gets, one after the other: 0.01 is 1 %.", _LADDER),
    ] = (0.01, 0.05, 0.25, 1.0)
    alpha: Annotated[
        float,
        key(
            "Maximum probability that a candidate is rolled back although it is as good as the stable version.",
            share(zero=False, most=0.5),
        ),
    ] = 0.01
    shadow: Annotated[bool, key(_SHADOW, FLAG)] = True
    min_step: Annotated[
        str, key("Minimum time at each share of the ladder, even if the evidence is already clear.", span(zero=True))
    ] = "10s"
    max_difference: Annotated[
        float | None, key(_DIFFERENCE, share(), shown="no limit: differences are only reported")
    ] = None
    max_disagreement: Annotated[float, key(_DISAGREEMENT, share(zero=False, one=False))] = 0.01
    compare: Annotated[str | None, key(_COMPARE, text("FILE:FUNCTION"), shown="depends on the kind of model")] = None
    follow: Annotated[
        bool, key("Start a rollout when the registry alias of the model points to another version.", FLAG)
    ] = True
    follow_every: Annotated[
        str, key("With `follow`: interval between checks of the model's registry alias.", span(least="1s", most="1d"))
    ] = "5s"
    drain: Annotated[
        str,
        key(
            "Time that running requests and streamed replies get to finish before their version is unloaded.",
            span(zero=True),
        ),
    ] = "10m"

    def __post_init__(self) -> None:
        check(self)
        self.policy(1.0, 900.0)

    @property
    def follow_every_s(self) -> float:
        """Between two looks at the alias."""
        return parse_duration(self.follow_every, "follow_every")

    @property
    def drain_s(self) -> float:
        """For what was admitted."""
        return parse_duration(self.drain, "drain")

    def policy(
        self, slo_s: float, load_timeout_s: float, mode: str = "canary", first: float | None = None
    ) -> RolloutSettings:
        """How it is judged; `first` is the share to begin with, without a shadow. Raises InvalidInput."""
        ladder, shadow = self.ladder, self.shadow and first is None
        if first is not None:
            ladder = (first, *(each for each in self.ladder if each > first))
        if mode == "shadow":
            ladder, shadow = (), True
        return RolloutSettings(
            ladder=ladder,
            alpha=self.alpha,
            shadow=shadow,
            slo_s=slo_s,
            disagreement_bound=None if self.max_difference is None else self.max_disagreement,
            min_step_s=parse_duration(self.min_step, "min_step"),
            max_loading_s=load_timeout_s,
        )
