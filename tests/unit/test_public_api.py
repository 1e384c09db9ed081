from __future__ import annotations

import twoshift

NAMES = [
    "Broken",
    "CallCost",
    "CallSize",
    "Engine",
    "Fit",
    "InvalidInput",
    "LaneLimits",
    "Sample",
    "Scorer",
    "TooLarge",
    "TryLater",
    "TwoshiftError",
    "__version__",
    "cap",
    "cost_table",
    "fit_call_cost",
    "load_model",
    "plan_fleet",
    "spark_scorer",
    "stored_cost",
    "sweep",
]


def test_the_public_names_are_these_and_sorted() -> None:
    assert twoshift.__all__ == NAMES == sorted(NAMES)


def test_every_public_name_is_there() -> None:
    assert all(getattr(twoshift, name) is not None for name in NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(twoshift, "no_such_name")
