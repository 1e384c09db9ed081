"""Two small models for the quickstart: texts to vectors, and texts to a score. They need nothing but NumPy."""

import re
import zlib

import numpy as np

_SIZE = 256
_COMMON = {"a", "an", "and", "are", "for", "i", "in", "is", "it", "my", "of", "on", "or", "the", "to", "was", "with"}
_URGENT = {"cannot", "crashed", "down", "error", "failed", "fails", "locked", "lost", "stolen", "twice", "wrong"}


def _words(text):
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word not in _COMMON]


class Words:
    """A text as a vector: which words it has, hashed into 256 places."""

    outputs = ("embedding",)
    example = "The invoice was charged twice"  # a row to warm up and measure with

    def load(self):
        pass

    def prepare(self, rows):
        made = np.zeros((len(rows), _SIZE), np.float32)
        for place, text in enumerate(rows):
            for word in _words(text):
                made[place, zlib.crc32(word[:5].encode()) % _SIZE] += 1  # five letters: so plurals are the same word
        return {"counts": made}

    def predict(self, batch):
        length = np.linalg.norm(batch["counts"], axis=1, keepdims=True)
        return {"embedding": batch["counts"] / np.maximum(length, 1e-9)}


class Urgency:
    """How urgent a ticket sounds, from 0 to 1: the more urgent words, the more."""

    outputs = ("urgency",)
    example = {"text": "The service is down"}

    def load(self):
        pass

    def prepare(self, rows):
        return {"hits": np.array([sum(word in _URGENT for word in _words(row["text"])) for row in rows])}

    def predict(self, batch):
        return {"urgency": 1 - np.exp(-batch["hits"])}
