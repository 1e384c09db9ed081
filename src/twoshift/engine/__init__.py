"""The loop that owns one device: decide, run, report. Here the two shifts meet."""

from __future__ import annotations

from twoshift.engine.loop import Engine, EngineStats, Health
from twoshift.engine.results import BlockFuture, BlockResult, RowFuture, RowResult

__all__ = ["BlockFuture", "BlockResult", "Engine", "EngineStats", "Health", "RowFuture", "RowResult"]
