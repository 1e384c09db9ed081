"""Do two machines prepare rows alike? The tokenizer travels with its worker, the library that runs it does not."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from twoshift.ports import RowPreparer
from twoshift.runtime.encoder.sample import varied_texts

__all__ = ["rows_fingerprint"]


def rows_fingerprint(preparer: RowPreparer) -> str:
    """Of texts, or of pairs of them, whichever it takes."""
    found = hashlib.sha256()
    for text in varied_texts():
        for row in (text, (text, text)):
            found.update(_prepared(preparer, row))
    return found.hexdigest()


def _prepared(preparer: RowPreparer, row: Any) -> bytes:
    try:
        arrays = preparer.arrays_of(preparer.prepare([row]))
    except Exception as error:  # whatever it does with what it does not take, it does it everywhere
        return type(error).__name__.encode()
    told = (name.encode() + np.ascontiguousarray(values).tobytes() for name, values in sorted(arrays.items()))
    return b" ".join(told)
