"""The loop that owns one device: decide, run, report. Here the two shifts meet."""

from __future__ import annotations

from twoshift.engine.loop import Engine
from twoshift.engine.results import BlockFuture, BlockResult, RowFuture, RowResult
from twoshift.engine.stats import EngineStats, Health

__all__ = ["BlockFuture", "BlockResult", "Engine", "EngineStats", "Health", "RowFuture", "RowResult"]
