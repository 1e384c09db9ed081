"""Classes such as a user writes, for programs that tests start."""

from __future__ import annotations

from pathlib import Path

__all__ = ["WORDS", "square", "written"]

WORDS = '''
import zlib

import numpy as np


class Words:
    """Texts to the words that they have."""

    outputs = ("embedding",)
    example = "a word"

    def load(self):
        pass

    def prepare(self, rows):
        made = np.zeros((len(rows), 16), np.float32)
        for place, row in enumerate(rows):
            if row == "bad":
                raise ValueError("bad")
            for word in row.split():
                made[place, zlib.crc32(word.encode()) % 16] += 1
        return {"words": made}

    def predict(self, batch):
        return {"embedding": batch["words"]}
'''

_SOURCE = '''
import asyncio
import time

import numpy as np


class Embed:
    """Texts to vectors of three numbers."""

    outputs = ("embedding",)
    example = "a"

    def load(self):
        pass

    def prepare(self, rows):
        return {"size": np.array([len(row) for row in rows])}

    def predict(self, batch):
        return {"embedding": np.stack([batch["size"] + k for k in range(3)], 1) / 7}


class Rank:
    """Pairs to scores: the shorter, the better."""

    outputs = ("score",)
    example = ("a", "b")

    def load(self):
        pass

    def prepare(self, rows):
        return {"size": np.array([len(query) + len(text) for query, text in rows])}

    def predict(self, batch):
        return {"score": 1.0 / (1 + batch["size"])}


class Troubled:
    """Texts to vectors of two numbers; a text may ask for trouble."""

    outputs = ("embedding",)
    example = "a"
    max_row_tokens = 50

    def load(self):
        self.largest = 0

    def prepare(self, rows):
        if rows[0].startswith("wait "):
            time.sleep(float(rows[0].split()[1]))
        texts = np.empty(len(rows), object)
        texts[:] = rows
        return {"text": texts}

    def tokens(self, batch):
        return [max(1, len(text.split())) for text in batch["text"]]

    def predict(self, batch):
        texts = batch["text"]
        self.largest = max(self.largest, len(texts))
        if len(texts) > 2 and "memory" in texts:
            raise MemoryError("it does not fit")
        for text in texts:
            word, _, rest = text.partition(" ")
            if word == "sleep":  # and, in a file, that it does
                seconds, _, told = rest.partition(" ")
                if told:
                    open(told, "w").close()
                time.sleep(float(seconds))
            elif word == "raise":
                raise ArithmeticError("this text is bad")
            elif word == "never":
                raise MemoryError("it never fits")
            elif word == "lost":
                raise RuntimeError("the GPU is lost")
        values = [[np.nan if text == "nan" else len(text), 1.0] for text in texts]
        return {"embedding": np.array(values)}


class Looked:
    """Rows that are looked up first: what a text says of its lookup."""

    outputs = ("embedding",)
    example = "a"

    def load(self):
        self.at_once = self.most = 0

    async def prepare(self, row):
        text = row["text"] if isinstance(row, dict) else row
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            word, _, rest = text.partition(" ")
            if word == "look":
                await asyncio.sleep(float(rest))
            elif word == "unknown":
                raise KeyError("no such user")
            elif word == "down":
                raise ConnectionError("the store does not answer")
        finally:
            self.at_once -= 1
        return {"size": float(len(text)), "most": float(self.most)}

    def predict(self, batch):
        return {"embedding": np.stack([batch["size"], batch["most"]], 1)}
'''

_SQUARE = """
import os, time
from pathlib import Path
import numpy as np


class Square:
    outputs = ("squared",)
{more}
    def load(self):
        pass

    def predict(self, batch):
        x = np.asarray(batch["x"], np.float64)
        {body}
        return {{"squared": x * x}}
"""


def square(body: str = "pass", has_example: bool = False) -> str:
    """x squared; `body` is what else it does with x, an array. A server measures it by its example."""
    more = '    example = {"x": 1.0}\n' if has_example else ""
    return _SQUARE.format(more=more, body=body)


def written(folder: Path) -> Path:
    """The file that has them."""
    path = folder / "models.py"
    path.write_text(_SOURCE)
    return path
