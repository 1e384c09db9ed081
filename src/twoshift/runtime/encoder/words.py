"""A short text's tokens from those of its words, each asked of the tokenizer once: live requests come one by one.

Where a tokenizer cuts a text into words first and looks at each by itself, as BERT's do, a text of words that were
seen before needs no tokenizer. It is asked for everything else: other kinds, other letters, its own special tokens.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["WordTokens"]

_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")  # of plain texts: punctuation stands alone
_PLAIN = {*map(chr, range(32, 127)), "\t", "\n", "\r"}
_MANY, _LONG = 1 << 16, 32  # words that are remembered; of how many letters each


class WordTokens:
    """Any thread may ask; threads that remember at the same time remember the same."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self._tokenizer, self._max_tokens = tokenizer, max_tokens  # from which it cuts
        self._known: dict[str, list[int]] = {}
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        plain = _PLAIN - {content[:1] for content in added}  # a text with one of those may hold such a token
        self._plain = re.compile(f"[{re.escape(''.join(sorted(plain)))}]*")
        self._before, self._after = self._around("a")
        self._is_known_kind = (
            _kind(tokenizer) == ("BertNormalizer", "BertPreTokenizer", "WordPiece")
            and not any(content[:1].isalnum() for content in added)
            and not any(tokenizer.encode("a").type_ids)
            and max_tokens > _LONG
        )

    def of(self, text: str) -> list[int] | None:
        """As the tokenizer has them, special ones included; None where it must be asked."""
        if not self._is_known_kind or self._plain.fullmatch(text) is None:
            return None
        ids, known = self._before.copy(), self._known
        for word in _WORDS.findall(text):
            if (found := known.get(word)) is None and (found := self._looked_up(word)) is None:
                return None
            ids += found
        ids += self._after
        return ids if len(ids) < self._max_tokens else None

    def _looked_up(self, word: str) -> list[int] | None:
        if len(word) > _LONG:
            return None
        if len(self._known) >= _MANY:
            self._known.clear()
        found = self._known[word] = self._tokenizer.encode(word, add_special_tokens=False).ids
        return found

    def _around(self, text: str) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        bare, whole = (self._tokenizer.encode(text, add_special_tokens=special).ids for special in (False, True))
        before = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
        return whole[:before], whole[before + len(bare) :]


def _kind(tokenizer: Any) -> tuple[str | None, ...]:
    told = json.loads(tokenizer.to_str())
    return tuple((told[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
