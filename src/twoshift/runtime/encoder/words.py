"""A short text's tokens from those of its words, each asked of the tokenizer once: live requests come one by one.

Where a tokenizer cuts a text into words first and looks at each by itself, as BERT's do, a text of words that were
seen before needs no tokenizer. It is asked for everything else: other kinds, other letters, its own special tokens.
"""

from __future__ import annotations

import json
import re
import string
from itertools import chain
from typing import Any

__all__ = ["WordTokens", "WordUse"]

_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")  # of plain texts: punctuation stands alone
_PUNCTUATION = {*string.punctuation}
_PLAIN = {*map(chr, range(32, 127)), "\t", "\n", "\r"}
_MANY, _LONG = 1 << 16, 32  # words that are remembered; of how many letters each
_SHORT = 8  # letters for each token that a text may have: longer ones would mostly be cut
_JUDGED_TEXTS = 8192  # of a batch job, at a time
_LEAST_KNOWN, _MOST_ASKED = 0.5, 0.1  # of those texts; of their tokens
_BERT = ("BertNormalizer", "BertPreTokenizer", "WordPiece")


class WordTokens:
    """Any thread may ask; threads that remember at the same time remember the same."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self._tokenizer, self._max_tokens = tokenizer, max_tokens  # from which it cuts
        self._known: dict[str, list[int]] = {}
        self.looked_up = 0  # words that the tokenizer was asked for
        begins = {token.content[:1] for token in tokenizer.get_added_tokens_decoder().values()}
        plain = _PLAIN - begins  # a text with one of those may hold such a token
        self._plain = re.compile(f"[{re.escape(''.join(sorted(plain)))}]*")
        # Only punctuation stays what it is where a tokenizer looks for its own in what it has made of a text
        is_known_kind = max_tokens > _LONG and begins <= _PUNCTUATION and _kind(tokenizer) == _BERT
        self._around = self._seen_around() if is_known_kind else None

    def of(self, text: str) -> list[int] | None:
        """As the tokenizer has them, special ones included; None where it must be asked."""
        most = self._max_tokens
        if self._around is None or len(text) > _SHORT * most or self._plain.fullmatch(text) is None:
            return None
        before, after = self._around
        words = _WORDS.findall(text)
        try:
            ids = [*before, *chain.from_iterable(map(self._known.__getitem__, words)), *after]
        except KeyError:
            if (found := self._learned(words)) is None:
                return None
            ids = [*before, *chain.from_iterable(found), *after]
        return ids if len(ids) < most else None

    def _learned(self, words: list[str]) -> list[list[int]] | None:
        """The tokens of each, some of them asked for; None where one has none, or they are too many."""
        known, found, size = self._known, list[list[int]](), 0
        for word in words:
            if (ids := known.get(word)) is None and (ids := self._looked_up(word)) is None:
                return None
            found.append(ids)
            if (size := size + len(ids)) >= self._max_tokens:
                return None
        return found

    def _looked_up(self, word: str) -> list[int] | None:
        if len(word) > _LONG:
            return None
        if len(self._known) >= _MANY:
            self._known.clear()
        self.looked_up += 1
        try:
            found = self._known[word] = self._tokenizer.encode(word, add_special_tokens=False).ids
        except Exception:  # as over a word that it has no token for; asked for the whole text, it is told which row
            return None
        return found

    def _seen_around(self) -> tuple[list[int], list[int]] | None:
        """The special tokens before and after every text; None where they are no such thing."""
        try:
            (before, after), other = self._found_around("a"), self._found_around("b")
            empty, whole = self._tokenizer.encode(""), self._tokenizer.encode("a")
        except Exception:  # it has no token for those
            return None
        is_around = other == (before, after) and empty.ids == before + after and not any(whole.type_ids)
        return (before, after) if is_around else None

    def _found_around(self, text: str) -> tuple[list[int], list[int]]:
        bare, whole = (self._tokenizer.encode(text, add_special_tokens=special).ids for special in (False, True))
        before = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
        return whole[:before], whole[before + len(bare) :]


class WordUse:
    """Words for batches of texts, as long as that pays: not for texts that are mostly cut, foreign, or numbers."""

    def __init__(self, words: WordTokens) -> None:
        self._words, self._pays = words, True
        self._texts = self._known = self._tokens = 0  # since it was last judged
        self._asked = 0  # words, before that
        self._is_learning = True  # of the first texts most words are new

    def tokens_of(self, rows: list[Any]) -> list[list[int] | None] | None:
        """The tokens of each, None where the tokenizer must be asked; None: ask it for all of them."""
        if not self._pays:
            return None
        found = [self._words.of(row) if isinstance(row, str) else None for row in rows]
        known = [ids for ids in found if ids is not None]
        self._texts, self._known = self._texts + len(rows), self._known + len(known)
        self._tokens += sum(map(len, known))
        if self._texts >= _JUDGED_TEXTS:
            self._judge()
        return found

    def _judge(self) -> None:
        asked = self._words.looked_up - self._asked
        has_paid = self._known >= _LEAST_KNOWN * self._texts and asked <= _MOST_ASKED * self._tokens
        self._pays = self._is_learning or has_paid
        self._texts = self._known = self._tokens = 0
        self._asked, self._is_learning = self._words.looked_up, False


def _kind(tokenizer: Any) -> tuple[str | None, ...]:
    told = json.loads(tokenizer.to_str())
    return tuple((told[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
