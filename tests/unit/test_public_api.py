from __future__ import annotations

import subprocess
import sys

import twoshift

NAMES = [
    "AsyncClient",
    "Broken",
    "CallCost",
    "CallSize",
    "Client",
    "Denied",
    "Engine",
    "Fit",
    "InvalidInput",
    "LaneLimits",
    "Late",
    "NotFound",
    "OverLimit",
    "RunningJob",
    "Sample",
    "Scorer",
    "Server",
    "TooLarge",
    "TryLater",
    "TwoshiftError",
    "__version__",
    "cap",
    "cost_table",
    "fit_call_cost",
    "llm_engine",
    "load_model",
    "plan_fleet",
    "run",
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


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "numpy msgspec httpx pyarrow rich typer asyncio"
    code = f"import sys, twoshift; dir(twoshift); print([each for each in '{heavy}'.split() if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"
