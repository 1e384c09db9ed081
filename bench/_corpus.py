"""Documents with a long tail of lengths, as web text and tickets have it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def documents(tokenizer: Path, count: int, mean_tokens: float, longest: int, seed: int = 0) -> list[str]:
    """Texts of 4 to `longest` tokens, lognormal, of words that are one token each in a WordPiece vocabulary."""
    vocabulary = json.loads(tokenizer.read_text())["model"]["vocab"]
    words = np.array([word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()])
    rng = np.random.default_rng(seed)
    spread = 0.8
    drawn = rng.lognormal(np.log(mean_tokens) - spread**2 / 2, spread, count)
    lengths = np.clip(drawn, 4, longest).astype(int)
    return [" ".join(rng.choice(words, length - 2)) for length in lengths]  # two are the tokenizer's own


def queries(tokenizer: Path, count: int, tokens: int, seed: int = 0) -> list[str]:
    """Texts of exactly so many tokens, all different."""
    vocabulary = json.loads(tokenizer.read_text())["model"]["vocab"]
    words = np.array([word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()])
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, tokens - 2)) for _ in range(count)]  # two are the tokenizer's own
