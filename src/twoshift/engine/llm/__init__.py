"""The loop that owns a language model: live streams first, background sequences as far as the objective allows."""

from __future__ import annotations

from twoshift.engine.llm.loop import LlmEngine
from twoshift.engine.llm.settings import LlmObjective
from twoshift.engine.llm.stats import FinishedSequence, LlmLane, LlmStats
from twoshift.engine.llm.stream import TokenStream

__all__ = ["FinishedSequence", "LlmEngine", "LlmLane", "LlmObjective", "LlmStats", "TokenStream"]
