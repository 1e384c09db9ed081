"""How large prompts are, and how they begin, before anybody has counted their tokens."""

from __future__ import annotations

from collections.abc import Sequence

from twoshift.generation import GenerationRequest
from twoshift.policy.llm_routing import Prefix, SequencesAsked
from twoshift.policy.routing import TokenGuess

__all__ = ["PromptSizes"]

_PREFIX_CHARACTERS = (8192, 2048, 512, 128)  # shorter ones are read in no time


class PromptSizes:
    """Learns how many characters a token has."""

    def __init__(self, context_tokens: int) -> None:
        self._context_tokens = context_tokens
        self._guess = TokenGuess(context_tokens)

    def of(self, rows: Sequence[GenerationRequest]) -> SequencesAsked:
        """As routing wants it."""
        texts = [_text(row) for row in rows]
        size = self._guess.size([len(text) for text in texts])
        most = max(row.params.max_tokens or self._context_tokens for row in rows)
        return SequencesAsked(size.tokens, len(rows), most, self._prefixes(texts[0], rows[0].adapter))

    def seen(self, rows: Sequence[GenerationRequest], tokens: int) -> None:
        """They had so many tokens."""
        self._guess.seen(sum(len(_text(row)) for row in rows), tokens)

    def _prefixes(self, text: str, adapter: str) -> list[Prefix]:
        """Prompts of different adapters share none."""
        return [
            Prefix(hash((adapter, text[:count])), self._guess.size([count]).tokens)
            for count in _PREFIX_CHARACTERS
            if len(text) >= count
        ]


def _text(row: GenerationRequest) -> str:
    """All that is said; a token that is given as a number is a character."""
    if isinstance(row.prompt, str):
        return row.prompt
    parts = [chr(each % 0xD800) if isinstance(each, int) else f"{each.role}\n{each.text}\n" for each in row.prompt]
    told = [] if row.tools is None else [f"{each.name}{each.description}{each.parameters}" for each in row.tools.tools]
    return "".join([*told, *parts])
