"""Which cost curve a command is about: a measured profile, or o + c * b from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

from twoshift.cli.params import option_of
from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput, NotFound, TwoshiftError
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import Curve, RowSize
from twoshift.serve.measured_curves import MeasuredCurve
from twoshift.values import count, millis, text

if TYPE_CHECKING:
    from twoshift.policy.profile import Profile
    from twoshift.ports import Profiles

__all__ = [
    "CallItemMs",
    "CallOverheadMs",
    "CurveSource",
    "ItemMs",
    "OverheadMs",
    "ProfileName",
    "RowTokens",
    "StoredCurves",
    "StoredProfile",
    "TokensPerRow",
    "chosen_curve",
]  # fmt: skip

_C = TypeVar("_C", bound=Curve, covariant=True)

CallOverheadMs = Annotated[
    float | None,
    setting(
        "Part of a forward call's time that does not depend on its number of rows, in milliseconds.", millis(zero=True)
    ),
]
CallItemMs = Annotated[float | None, setting("Time that each row adds to a forward call, in milliseconds.", millis())]
StoredProfile = Annotated[
    str | None, setting("Stored profile to use, from `twoshift profile` or `twoshift plan fit --save`.", text("NAME"))
]
TokensPerRow = Annotated[
    float | None,
    setting(
        "With --profile: average tokens per row, if your rows are longer or shorter than the rows of the profile.",
        count(least=1),
    ),
]
OverheadMs = Annotated[float | None, option_of(CallOverheadMs)]
ItemMs = Annotated[float | None, option_of(CallItemMs)]
ProfileName = Annotated[str | None, option_of(StoredProfile)]
RowTokens = Annotated[float | None, option_of(TokensPerRow)]


@dataclass(frozen=True, slots=True)
class CurveSource(Generic[_C]):
    """A curve, the rows it is read for, and where it came from."""

    cost: _C
    row: RowSize
    name: str
    device: str = ""  # on which it was measured


def chosen_curve(
    overhead_ms: float | None, item_ms: float | None, profile: str | None, row_tokens: float | None
) -> CurveSource[CallCost]:
    """The profile, or the line through the two figures; raises InvalidInput where it is neither or both."""
    if profile is not None:
        if overhead_ms is not None or item_ms is not None:
            why = "with --overhead-ms or --item-ms: use either a profile or these two options"
            raise Inapplicable("profile", profile, why)
        return _profile(profile, row_tokens)
    if overhead_ms is None or item_ms is None:
        missing = "overhead_ms" if overhead_ms is None else "item_ms"
        raise InvalidInput(missing, None, "both --overhead-ms and --item-ms, or --profile NAME")
    if row_tokens is not None:
        raise Inapplicable("row_tokens", row_tokens, "without --profile, because --item-ms is already the time per row")
    cost = CallCost.line(overhead_ms / 1e3, item_ms / 1e3)
    return CurveSource(cost, RowSize(), f"{overhead_ms:g} ms per call + {item_ms:g} ms per item")


def _profile(name: str, row_tokens: float | None) -> CurveSource[CallCost]:
    from twoshift.wiring.stored_profiles import profiles

    found = _found(profiles(), name)
    row = found.row if row_tokens is None else found.row.scaled_to(row_tokens)
    where = ", ".join(word for word in (found.model, found.device, found.precision) if word and word.isprintable())
    of = "" if row.tokens == 1 else f", {row.tokens:.3g} tokens per row"
    return CurveSource(
        found.served_cost, row, f"profile {found.name}{f' ({where})' if where else ''}{of}", found.device
    )


class StoredCurves:
    """The profiles of this machine, for the planner's page."""

    def names(self) -> list[str]:
        """Sorted."""
        from twoshift.wiring.stored_profiles import profiles

        return profiles().names()

    def get(self, name: str, /) -> MeasuredCurve:
        """Raises InvalidInput with the known names."""
        found = _profile(name, None)
        return MeasuredCurve(found.cost, found.row, f"the {found.name}")


def _found(store: Profiles, name: str) -> Profile:
    """The profile of that name, or the only one whose name begins so or whose model is called so."""
    names = store.names()
    if name in names:
        return store.get(name)
    near = [each for each in names if each.startswith(name)] or [n for n in names if _model(store, n) == name]
    if len(near) == 1:
        return store.get(near[0])
    listed = "".join(f"\n  {each}" for each in near or names)
    if near:
        raise InvalidInput("profile", name, f"the full name of one of these {len(near)} profiles:{listed}")
    none = "a stored profile; there is none yet, and `twoshift profile MODEL` creates a profile"
    raise NotFound("profile", name, f"one of the stored profiles:{listed}" if names else none)


def _model(store: Profiles, name: str) -> str | None:
    try:
        return store.get(name).model
    except TwoshiftError:  # damaged: not what is asked for
        return None
