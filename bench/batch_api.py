"""Listing, polling and creating batches where a thousand wait and a hundred have begun: p50 and p99 in milliseconds.

`python bench/batch_api.py [--waiting 1000] [--begun 100] [--asked 300]`. The model sleeps, so that little ends.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MODEL = """
import time
import numpy as np

class Slow:
    outputs = ("embedding",)
    example = "a"

    def load(self): pass
    def prepare(self, rows): return {"size": np.array([len(row) for row in rows])}
    def predict(self, batch):
        time.sleep(0.005 * len(batch["size"]))
        return {"embedding": np.ones((len(batch["size"]), 3))}
"""
_JSON = "application/json"
REQUESTS = 2000  # of a batch


class Asking:
    """One connection; what each request took."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = _JSON) -> tuple[Any, float]:
        began_s = time.perf_counter()
        self._connection.request(method, path, body, {"content-type": kind})
        reply = self._connection.getresponse()
        data = reply.read()
        took_s = time.perf_counter() - began_s
        assert reply.status == 200, data[:500]
        return json.loads(data), took_s


def uploaded(asking: Asking, requests: int) -> str:
    line = '{"custom_id":"%d","method":"POST","url":"/v1/embeddings","body":{"model":"Slow","input":"a"}}\n'
    content = "".join(line % k for k in range(requests))
    form = '--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    form += f'--b\r\ncontent-disposition: form-data; name="file"; filename="r"\r\n\r\n{content}\r\n--b--\r\n'
    return asking.ask("POST", "/v1/files", form.encode(), "multipart/form-data; boundary=b")[0]["id"]


def created(asking: Asking, file_id: str, number: int) -> float:
    wanted = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    return asking.ask("POST", "/v1/batches", json.dumps({**wanted, "metadata": {"n": str(number)}}).encode())[1]


def statuses(asking: Asking) -> dict[str, int]:
    counts, after = dict[str, int](), ""
    while True:
        page, _ = asking.ask("GET", f"/v1/batches?limit=100{after}")
        for batch in page["data"]:
            counts[batch["status"]] = counts.get(batch["status"], 0) + 1
        if not page["has_more"]:
            return counts
        after = f"&after={page['last_id']}"


def measured(port: int, waiting: int, begun: int, asked: int) -> None:
    asking = Asking(port)
    file_id = uploaded(asking, REQUESTS)
    creating = [created(asking, file_id, number) for number in range(waiting + begun)]
    while sum(statuses(asking).get(name, 0) for name in ("in_progress", "validating")) < begun:
        time.sleep(0.5)
    print("batches:", ", ".join(f"{count:,} {name}" for name, count in sorted(statuses(asking).items())))
    ids = [batch["id"] for batch in asking.ask("GET", "/v1/batches?limit=100")[0]["data"]]
    polling = [asking.ask("GET", f"/v1/batches/{ids[k % len(ids)]}")[1] for k in range(asked)]
    listing = [asking.ask("GET", f"/v1/batches?limit=20&after={ids[k % len(ids)]}")[1] for k in range(asked)]
    creating_more = [created(asking, file_id, waiting + begun + number) for number in range(asked)]
    for name, took in (
        ("create, from none on", creating),
        ("poll", polling),
        ("list 20", listing),
        ("create", creating_more),
    ):
        p50, p99 = 1e3 * np.percentile(took, [50, 99])
        print(f"{name:<22} p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   of {len(took):,}")


def main() -> None:
    """Start a server, fill it, ask it, end it."""
    given = argparse.ArgumentParser(description=__doc__)
    for name, default in (("waiting", 1000), ("begun", 100), ("asked", 300)):
        given.add_argument(f"--{name}", type=int, default=default)
    options = given.parse_args()
    with tempfile.TemporaryDirectory() as home:
        Path(home, "m.py").write_text(MODEL)
        words = [sys.executable, "-m", "twoshift", "serve", f"{home}/m.py:Slow", "--slo-ms", "500", "--port", "0"]
        env = os.environ | {"TWOSHIFT_HOME": home}
        server = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            found = None
            while found is None:
                found = re.search(r"Ready at http://\S+:(\d+)", server.stderr.readline())
            measured(int(found[1]), options.waiting, options.begun, options.asked)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
