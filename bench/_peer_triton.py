"""Triton, by nvidia-pytriton: `_peer_triton.py MODEL PORT`.

Dynamic batching without a delay: what comes while a call runs is the next batch. One instance with both threads: two
at a time share the same two cores. pytriton's checks of each answer are off.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
from _peer_model import INSTANCES, MAX_BATCH, knob, load
from _servers import free_port

triton: Any = importlib.import_module("pytriton.triton")  # only the peers' own environments have them
config: Any = importlib.import_module("pytriton.model_config")
decorators: Any = importlib.import_module("pytriton.decorators")


WAIT_US = int(1e3 * knob("WAIT_MS", 0))


def callable_for(name: str) -> Any:
    """One instance."""
    model = load(name)

    @decorators.batch
    def embed(text: Any) -> list[Any]:
        return [model([each.decode() for each in text[:, 0].tolist()])]

    @decorators.batch
    def same(x: Any) -> list[Any]:
        return [model(x)]

    return embed if name == "minilm" else same


def main(name: str, port: int) -> None:
    tensor = config.Tensor
    tensors = {
        "minilm": (tensor(name="text", dtype=bytes, shape=(1,)), ("embedding", 384)),
        "identity": (tensor(name="x", dtype=np.float32, shape=(4,)), ("y", 4)),
    }
    given, (answer, width) = tensors[name]
    batcher = config.DynamicBatcher(max_queue_delay_microseconds=WAIT_US)
    ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    with triton.Triton(config=triton.TritonConfig(http_address="127.0.0.1", allow_metrics=False, **ports)) as server:
        server.bind(
            model_name=name,
            infer_func=[callable_for(name) for _ in range(INSTANCES)],
            inputs=[given],
            outputs=[tensor(name=answer, dtype=np.float32, shape=(width,))],
            config=config.ModelConfig(max_batch_size=MAX_BATCH, batcher=batcher),
            strict=False,
        )
        server.serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
