"""LitServe with batching: `_peer_litserve.py MODEL PORT`.

Its fast queue (ZeroMQ) is on; one process for HTTP and one for the model, which has both threads.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from _peer_model import INSTANCES, MAX_BATCH, knob, load, told

litserve: Any = importlib.import_module("litserve")  # only the peers' own environments have it

WAIT_S = knob("WAIT_MS", 2) / 1e3
FRONTS = int(knob("FRONTS", 1))
FAST_QUEUE = bool(knob("FAST_QUEUE", 1))


class Api(litserve.LitAPI):
    """Requests to rows, rows to replies."""

    def __init__(self, name: str) -> None:
        super().__init__(max_batch_size=MAX_BATCH, batch_timeout=WAIT_S, api_path="/predict")
        self._name = name

    def setup(self, device: str) -> None:
        self._model = load(self._name)

    def decode_request(self, request):  # it reads the annotation, and takes none for JSON
        return request["input"]

    def batch(self, inputs: Sequence[Any]) -> Any:
        return list(inputs)

    def predict(self, rows: Any) -> Any:
        return self._model(rows)

    def unbatch(self, output: Any) -> Any:
        return list(output)

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"output": told(self._name, output)}


def main(name: str, port: int) -> None:
    server = litserve.LitServer(Api(name), accelerator="cpu", workers_per_device=INSTANCES, fast_queue=FAST_QUEUE)
    server.run(host="127.0.0.1", port=port, num_api_servers=FRONTS, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
