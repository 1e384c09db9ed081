"""`twoshift plan ...`: what to rent, before renting anything."""

from twoshift.cli.plan import (  # noqa: F401  (they register themselves)
    calls,
    devices,
    fits,
    fleets,
    goals,
    hybrids,
    page,
    regimes,
    tokens,
)
from twoshift.cli.plan.app import app

__all__ = ["app"]
