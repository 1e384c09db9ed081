"""How a job's run ended, as the program's exit code."""

from __future__ import annotations

__all__ = ["EXIT_CODES"]

EXIT_CODES = {"done": 0, "stopped": 3, "too many errors": 4, "dead shards": 5, "low recall": 6}
