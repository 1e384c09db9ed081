"""`twoshift plan ...`: what to rent, before renting anything."""

from twoshift.cli.plan import calls, devices, fits, fleets, goals, regimes, tokens  # noqa: F401  (they register themselves)
from twoshift.cli.plan.app import app

__all__ = ["app"]
