"""One model, two shifts: live requests inside an SLO, batch jobs in the idle time of the same devices."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from twoshift._version import __version__

if TYPE_CHECKING:
    from twoshift.client import AsyncClient, Client
    from twoshift.engine import Engine
    from twoshift.errors import (
        Broken,
        Denied,
        InvalidInput,
        Late,
        NotFound,
        OverLimit,
        TooLarge,
        TryLater,
        TwoshiftError,
    )
    from twoshift.local_job import RunningJob, run
    from twoshift.policy.cost import CallCost, Sample
    from twoshift.policy.fit import Fit, fit_call_cost
    from twoshift.policy.lane_values import LaneLimits
    from twoshift.policy.plan import cap, cost_table, plan_fleet, sweep
    from twoshift.scorers import Scorer, spark_scorer
    from twoshift.server import Server
    from twoshift.types import CallSize
    from twoshift.wiring.model_loading import load_model
    from twoshift.wiring.served_models import llm_engine
    from twoshift.wiring.stored_profiles import stored_cost

__all__ = [
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

_HOMES = {
    "AsyncClient": "client",
    "Broken": "errors",
    "CallCost": "policy.cost",
    "CallSize": "types",
    "Client": "client",
    "Denied": "errors",
    "Engine": "engine",
    "Fit": "policy.fit",
    "InvalidInput": "errors",
    "LaneLimits": "policy.lane_values",
    "Late": "errors",
    "NotFound": "errors",
    "OverLimit": "errors",
    "RunningJob": "local_job",
    "Sample": "policy.cost",
    "Scorer": "scorers",
    "Server": "server",
    "TooLarge": "errors",
    "TryLater": "errors",
    "TwoshiftError": "errors",
    "cap": "policy.plan",
    "cost_table": "policy.plan",
    "fit_call_cost": "policy.fit",
    "llm_engine": "wiring.served_models",
    "load_model": "wiring.model_loading",
    "plan_fleet": "policy.plan",
    "run": "local_job",
    "spark_scorer": "scorers",
    "stored_cost": "wiring.stored_profiles",
    "sweep": "policy.plan",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    # Looked up on first use, so that `twoshift --help` does not wait for numpy.
    if name not in _HOMES:
        raise AttributeError(f"module 'twoshift' has no attribute {name!r}")
    return getattr(importlib.import_module(f"twoshift.{_HOMES[name]}"), name)
