"""Candidates of rollouts: versions in the registry, and whether they fit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from twoshift.errors import InvalidInput, TooLarge
from twoshift.serve.deployments import Deployments
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.rollouts import Candidate
from twoshift.wiring.registered_models import found_version

__all__ = ["RegisteredVersions", "free_bytes"]

_ROOM = 1.2  # of its files, that a model takes while it is loaded and warmed
_GPU_S = 5.0


class RegisteredVersions:
    """A VersionSource: the registry of the settings, and the memory of this machine."""

    def __init__(
        self,
        models: Deployments,
        settings: Mapping[str, ModelSettings],
        registry: str | None,
        free: Callable[[bool], int | None] | None = None,
    ) -> None:
        self._models, self._settings, self._registry, self._free = models, settings, registry, free or free_bytes

    def find(self, deployment: str, model: str) -> Candidate:
        """Raises NotFound with the known ones, InvalidInput, TryLater where the registry does not answer."""
        found = found_version(model, self._settings[deployment].registry or self._registry, lambda _text: None)
        if found is None:
            raise InvalidInput("model", model, "a version in the registry: NAME:4 or NAME@alias")
        return Candidate(found.ref, found.size_bytes)

    def check_room(self, deployment: str, candidate: Candidate) -> None:
        """Raises TooLarge where the memory does not hold it beside the version that answers."""
        each, backend = self._settings[deployment], self._models.find(deployment).backend
        on_gpu = backend.info.device.startswith("cuda")
        free, needs = self._free(on_gpu), int(_ROOM * candidate.size_bytes * max(1, backend.replicas().ready))
        if free is None or needs <= free:
            return
        where = "the GPU" if on_gpu else "this machine"
        accepted = f"at most {free / 1e9:.2f} GB, which is free on {where} while {deployment} is loaded"
        told = f"{accepted}; --replace (mode = replace) unloads {each.model} first, and then loads the new version"
        raise TooLarge("model", f"{candidate.ref}, which needs about {needs / 1e9:.2f} GB", told)


def free_bytes(on_gpu: bool) -> int | None:
    """Of the memory that models are in; None where nobody can tell."""
    return _free_on_gpu() if on_gpu else _free_on_host()


def _free_on_gpu() -> int | None:
    """Of the GPU that has most: replicas are shared out by the supervisor."""
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_S, check=True).stdout  # noqa: S603
        return max(int(line) << 20 for line in told.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _free_on_host() -> int | None:
    """What the system can give without swapping, within the container's limit."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = next(
            int(line.split()[1])
            for line in (group / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        )
    except (OSError, ValueError, StopIteration):  # no limit
        return free
    return min(free, max(0, limit - used + cached))
