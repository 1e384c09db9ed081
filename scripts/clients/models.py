"""Models beside minilm and smollm, small enough to need no weights."""

from __future__ import annotations

import numpy as np


class Ranker:
    """Pairs of texts: the share of the query's words that a text has."""

    outputs = ("score",)
    example = ("a red fox", "a fox")

    def load(self) -> None:
        """Nothing is read."""

    def prepare(self, rows):
        """How many words they share."""
        words = [(set(query.lower().split()), set(text.lower().split())) for query, text in rows]
        return {"share": np.array([len(query & text) / max(1, len(query)) for query, text in words])}

    def predict(self, batch):
        """That share."""
        return {"score": batch["share"]}


class Table:
    """Two numbers and their sum."""

    outputs = ("sum",)
    example = {"a": 1.0, "b": 2.0}  # noqa: RUF012 - as a user writes it

    def load(self) -> None:
        """Nothing is read."""

    def predict(self, batch):
        """A row out for each row in."""
        return {"sum": batch["a"] + batch["b"]}
