"""Ray Serve with `serve.batch`: `_peer_ray.py MODEL PORT`.

With its settings for throughput and HAProxy in front, as its guide for high throughput has it (`_serve_peers.py`). One
replica, whose model has both threads and runs beside its loop, so that requests come in meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from typing import Any

from _peer_model import INSTANCES, MAX_BATCH, knob, load, told

ray: Any = importlib.import_module("ray")
serve: Any = importlib.import_module("ray.serve")  # only the peers' own environments have them
responses: Any = importlib.import_module("starlette.responses")

WAIT_S = knob("WAIT_MS", 2) / 1e3
MOST_RUNNING = 4 * MAX_BATCH
CORES = 2


@serve.deployment(num_replicas=INSTANCES, max_ongoing_requests=MOST_RUNNING, ray_actor_options={"num_cpus": 1})
class Batched:
    """A replica."""

    def __init__(self, name: str) -> None:
        self._name, self._model = name, load(name)

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=WAIT_S)
    async def predict(self, rows: list[Any]) -> list[Any]:
        return await asyncio.to_thread(self._run, rows)

    def _run(self, rows: list[Any]) -> list[Any]:
        return [told(self._name, row) for row in self._model(rows)]

    async def __call__(self, request: Any) -> Any:
        asked = await request.json()
        return responses.JSONResponse({"output": await self.predict(asked["input"])})


def main(name: str, port: int) -> None:
    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port, "access_log": False})
    serve.run(Batched.bind(name), route_prefix="/predict")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # and Ray stops its own processes
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
