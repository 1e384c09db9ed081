"""A text that is longer than a model takes, as pieces that it does take."""

from __future__ import annotations

from typing import Any

__all__ = ["text_pieces"]


def text_pieces(tokenizer: Any, text: str, prompt: str, most_tokens: int) -> list[Any]:
    """As few encodings as hold all of the text, of nearly one size, the prompt before each; none: it leaves no room."""
    before = _bare(tokenizer, prompt) if prompt else None
    whole = _bare(tokenizer, text)
    special = tokenizer.num_special_tokens_to_add(False)
    room = most_tokens - special - (0 if before is None else len(before))
    if room < 1:
        return []
    count = max(1, -(-len(whole) // room))
    whole.truncate(max(1, -(-len(whole) // count)))
    pieces = (whole, *whole.overflowing)
    return [tokenizer.post_process(each if before is None else type(each).merge([before, each])) for each in pieces]


def _bare(tokenizer: Any, text: str) -> Any:
    """The library's encoding of a whole text, without special tokens: where it cuts, the rest is beside it."""
    found = tokenizer.encode(text, add_special_tokens=False)
    return type(found).merge([found, *found.overflowing]) if found.overflowing else found
