"""What the faces need of a language model, wherever its replicas run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeGuard

from twoshift.engine.llm import LlmStats
from twoshift.errors import InvalidInput
from twoshift.generation import GenerationRequest
from twoshift.runtime.tokenization import TextTokens
from twoshift.serve.live_model import LiveModel
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm.metrics import LlmMetrics
from twoshift.serve.llm.running import Running
from twoshift.serve.model import Answer

__all__ = ["LanguageModel", "TakesPrompts", "is_language_model"]


class LanguageModel(LiveModel, Protocol):
    """A model that generates text."""

    generated: LlmMetrics

    async def begin(
        self,
        rows: Sequence[GenerationRequest],
        timeout_s: float | None,
        arrived_s: float,
        left: Callable[[], None],
        tenant: str = "",
    ) -> Running:
        """Their sequences; raises InvalidInput, TooLarge, TryLater, Late, Broken. `left` is told once it is closed."""
        ...

    def sequences(self) -> LlmStats:
        """How it stands and what it has done, in sequences and tokens."""
        ...

    def text_tokens(self) -> TextTokens:
        """Its tokenizer; raises InvalidInput where that is another server's."""
        ...


def is_language_model(model: object) -> TypeGuard[LanguageModel]:
    """Whether it generates text."""
    return isinstance(model, TakesPrompts)


class TakesPrompts:
    """What every language model answers where rows are meant."""

    name: str

    @property
    def rows_per_request(self) -> float:
        """It takes prompts, not rows."""
        return 1.0

    def finish_in_s(self, _size: int, _requests: int, _left_s: float) -> float:
        """It admits by the first token."""
        return 0.0

    async def answer(self, _request: LiveRequest) -> Answer:
        """Rows of tensors are not what it takes."""
        accepted = "a model that does not generate text; for this model, use an endpoint such as /v1/chat/completions"
        raise InvalidInput("model", self.name, accepted)
