"""Programs of Debian's packages that tests need: installed where this may be done, skipped where not."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

__all__ = ["debian_program"]


def debian_program(program: str, package: str) -> str:
    """Where it is; skips the test where it is not and cannot be installed."""
    if found := shutil.which(program):
        return found
    if os.geteuid() or not shutil.which("apt-get"):
        pytest.skip(f"{program} is not installed, and only root can install Debian's package {package}")
    command = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {package}"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with (Path(tempfile.gettempdir()) / "twoshift-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # apt-get has no patience with tests that run beside this one
        if found := shutil.which(program):
            return found
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=160, env=environment)
    if done.returncode or not (found := shutil.which(program)):
        pytest.skip(f"Debian's package {package} could not be installed: {done.stderr[-200:]}")
    return found
