"""The clients, and the environment that each one runs in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CLIENTS", "ROOT", "Client", "Left", "Outcome"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "clients"
INSTALL_S, RUN_S = 1800, 1500  # against hangs
_QUIET = {"DO_NOT_TRACK": "1", "HAYSTACK_TELEMETRY_ENABLED": "False", "LITELLM_LOG": "ERROR"}


class Left(Exception):
    """A client that is left out; says why."""


@dataclass(slots=True)
class Outcome:
    """What became of a client's checks."""

    name: str
    version: str
    passed: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])  # why, by check
    left: str = ""  # why it was not tried


@dataclass(frozen=True, slots=True)
class Client:
    """A script, and the packages that it needs; none: the project's own environment."""

    name: str
    packages: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """Which it runs."""
        return Path(__file__).with_name(f"with_{self.name.replace('-', '_')}.py")

    def run(self, environ: Mapping[str, str]) -> Outcome:
        """Its checks; raises Left where it cannot be installed."""
        python = self._python()
        env = {**os.environ, **_QUIET, **environ}
        env.pop("PYTHONPATH", None)
        log = FOLDER / f"{self.name}.log"
        with log.open("w") as errors:
            try:
                ended = subprocess.run([str(python), str(self.script)], env=env, stdout=subprocess.PIPE, stderr=errors,
                                       text=True, timeout=RUN_S, check=False)  # fmt: skip
            except subprocess.TimeoutExpired:
                return Outcome(self.name, "", failed={"all of it": f"no end after {RUN_S} s"})
        outcome = _read(self.name, ended.stdout)
        if ended.returncode != 0:
            outcome.failed["the script"] = f"exit {ended.returncode}; see {log.relative_to(ROOT)}"
        return outcome

    def _python(self) -> Path:
        FOLDER.mkdir(parents=True, exist_ok=True)
        if not self.packages:
            return Path(sys.executable)
        folder, wanted = FOLDER / self.name, " ".join(self.packages)
        stamp = folder / "ready"
        if not stamp.exists() or stamp.read_text() != wanted:
            self._install(folder)
            stamp.write_text(wanted)
        return folder / "bin" / "python"

    def _install(self, folder: Path) -> None:
        print(f"  installing into {folder.relative_to(ROOT)}, once", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, *self.packages]):
            try:
                ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            except subprocess.TimeoutExpired:
                raise Left(f"its installation took longer than {INSTALL_S} s") from None
            if ended.returncode != 0:
                said = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or ["it failed"]
                raise Left(f"it cannot be installed: {said[-1][:200]}")


def _read(name: str, said: str) -> Outcome:
    outcome = Outcome(name, "")
    for line in said.splitlines():
        match line.split("\t"):
            case ["version", version]:
                outcome.version = version
            case ["pass", what]:
                outcome.passed.append(what)
            case ["fail", what, reason]:
                outcome.failed[what] = reason
            case ["skip", why]:
                outcome.left = why
            case _:
                pass  # what a library prints
    return outcome


CLIENTS = (
    Client("openai", ("openai",)),
    Client("anthropic", ("anthropic",)),
    Client("cohere", ("cohere",)),
    Client("tritonclient", ("tritonclient[http,grpc]",)),
    Client("kserve", ("kserve",)),
    Client("java"),
    Client("langchain", ("langchain-openai", "langchain-cohere")),
    Client("llama-index", ("llama-index-llms-openai-like", "llama-index-embeddings-openai-like")),
    Client("litellm", ("litellm",)),
    Client("instructor", ("instructor",)),
    Client("haystack", ("haystack-ai",)),
    Client("autogen", ("autogen-ext[openai]", "autogen-agentchat")),
    Client("locust", ("locust",)),
    Client("vllm-bench"),
    # a release of PyTorch without CUDA, where the index has one: its own is gigabytes
    Client("guidellm", ("torch==2.13.0", "guidellm")),
    Client("aiperf", ("aiperf",)),
)
