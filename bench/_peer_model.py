"""What the peers serve: Twoshift's own runtime, so that only the serving differs, or a model that returns its input."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BATCH = 128  # as many as there are clients at the most

Model = Callable[[Sequence[Any]], NDArray[np.float32]]


def knob(name: str, best: float) -> float:
    """What `_serve_tuning.py` has found to be the best, unless it tries another one."""
    return float(os.environ.get(f"PEER_{name}", best))


INSTANCES = int(knob("INSTANCES", 1))  # copies of the model
THREADS = int(knob("THREADS", 2))  # of each


def load(name: str) -> Model:
    """Rows to rows of numbers: `minilm` takes texts, `identity` numbers."""
    if name == "identity":
        return lambda rows: np.asarray(rows, np.float32)
    from twoshift.wiring.model_loading import load_model

    runtime = load_model("minilm", device="cpu", threads=THREADS)
    lock = threading.Lock()  # it belongs to one thread at a time

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = runtime.prepare(texts)
        with lock:
            return runtime.launch([rows]).wait()["embedding"]

    return embed


def told(name: str, row: NDArray[np.float32]) -> Any:
    """A row as JSON has it: as short as OpenAI's clients ask for it, where it is a vector."""
    return row.tolist() if name == "identity" else base64.b64encode(row.tobytes()).decode()
