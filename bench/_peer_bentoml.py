"""BentoML with adaptive batching: `bentoml serve _peer_bentoml:Embedder` or `:Identity`.

One worker, whose model has both threads. Its batcher learns how long to wait, and refuses what it expects to take
longer than `max_latency_ms`: the objective that Twoshift is given.
"""

from __future__ import annotations

import importlib
from typing import Any

from _peer_model import INSTANCES, MAX_BATCH, knob, load, told

bentoml: Any = importlib.import_module("bentoml")  # only the peers' own environments have it

SLOWEST_MS = int(knob("SLOWEST_MS", 2_000))
batched = bentoml.api(batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=SLOWEST_MS, route="/predict")


@bentoml.service(workers=INSTANCES, traffic={"timeout": 60})
class Embedder:
    """Texts to vectors."""

    def __init__(self) -> None:
        self._model = load("minilm")

    @batched
    def embed(self, texts: list[str]) -> list[str]:
        return [told("minilm", row) for row in self._model(texts)]


@bentoml.service(workers=INSTANCES, traffic={"timeout": 60})
class Identity:
    """Numbers to themselves."""

    def __init__(self) -> None:
        self._model = load("identity")

    @batched
    def same(self, rows: list[list[float]]) -> list[list[float]]:
        return self._model(rows).tolist()
