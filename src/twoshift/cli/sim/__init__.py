"""`twoshift sim ...`: what would happen if."""

from twoshift.cli.sim import days, jobs, lanes, replays, rollouts  # noqa: F401  (they register themselves)
from twoshift.cli.sim.app import app

__all__ = ["app"]
