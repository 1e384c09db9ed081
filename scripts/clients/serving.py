"""The server that clients are tried on: minilm, smollm, a reranker and a table."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["TwoshiftServer"]

_READY_S = 900.0
_MODELS = Path(__file__).with_name("models.py")
_SETTINGS = f"""
port = 0
grpc_port = 0

[models.minilm]
slo_ms = 60000

[models.ranker]
model = "{_MODELS}:Ranker"
slo_ms = 60000

[models.table]
model = "{_MODELS}:Table"
slo_ms = 60000

[models.smollm]
ttft_ms = 600000
tpot_ms = 600000
"""  # nothing here is about time: the machine may be slow


class TwoshiftServer:
    """`twoshift serve` as a user starts it."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        config = home / "server.toml"
        config.write_text(_SETTINGS)
        program = str(Path(sys.executable).with_name("twoshift"))
        env = {**os.environ, "TWOSHIFT_HOME": str(home), "VLLM_CPU_KVCACHE_SPACE": "1"}
        words = [program, "serve", "--config", str(config)]
        self._process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
        self._said = ""
        threading.Thread(target=self._read, daemon=True).start()
        self._home, self.url, self._grpc = home, "", ""

    def __enter__(self) -> TwoshiftServer:
        end_s = time.monotonic() + _READY_S
        while not (found := re.search(r"Ready at (http://\S+)", self._said)):
            if self._process.poll() is not None or time.monotonic() > end_s:
                self.__exit__()
                sys.exit(f"the server did not start:\n{self._said[-3000:]}")
            time.sleep(0.1)
        self.url = found[1]
        grpc = re.search(r"gRPC at (\S+)", self._said)
        self._grpc = grpc[1] if grpc else ""
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()

    @property
    def environ(self) -> dict[str, str]:
        """What the scripts have to know."""
        from twoshift.runtime.encoder.folder import find_minilm

        smollm = next(path.parent for path in (self._home / "models").rglob("tokenizer.json"))
        return {
            "TWOSHIFT_URL": self.url,
            "TWOSHIFT_GRPC": self._grpc,
            "MINILM_FOLDER": str(find_minilm()),
            "SMOLLM_FOLDER": str(smollm),
        }

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said += line
