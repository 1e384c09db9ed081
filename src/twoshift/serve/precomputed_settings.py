"""Answers that are there already, as the settings of a model have them."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.declare import setting
from twoshift.errors import InvalidInput
from twoshift.units import parse_duration
from twoshift.values import choice, span, text

__all__ = ["KeyColumn", "MaxAge", "OnMiss", "PrecomputedPlace", "check_precomputed", "max_age_s"]

_SETTINGS = {"key": None, "max_age": None, "on_miss": "live"}  # and their defaults

PrecomputedPlace = Annotated[
    str | None,
    setting(
        "Answer by key from a job's output folder, or from the place that jobs write with --answer-table.",
        text("FOLDER"),
        more="A new run is used as soon as it is there. See [precomputed answers](hybrid.md).",
    ),
]
KeyColumn = Annotated[
    str | None, setting("With --precomputed: column whose values are the keys of the answers.", text("COLUMN"), "--key")
]
MaxAge = Annotated[
    str | None, setting("With --precomputed: do not serve answers older than this.", span(), shown="any age")
]
OnMiss = Annotated[
    str,
    setting(
        "With --precomputed: compute an answer live that is missing, too old or of another version, or refuse it "
        "with an error.",
        choice(("live", "error")),
    ),
]


def check_precomputed(settings: Any) -> None:
    """Raises InvalidInput where settings are there that need others."""
    if settings.precomputed is None:
        for name, usual in _SETTINGS.items():
            if (value := getattr(settings, name)) != usual:
                raise InvalidInput(name, value, "--precomputed as well")
        return
    if settings.key is None:
        raise InvalidInput("key", None, "--key with the column whose values are the keys of the answers")


def max_age_s(settings: Any) -> float | None:
    """None: any age."""
    return None if settings.max_age is None else parse_duration(settings.max_age, "max_age")
