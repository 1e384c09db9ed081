"""What a client's script reports: a line for each check. Standard library alone: every environment runs it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence

__all__ = ["FOX", "GRPC", "MINILM", "SMOLLM", "TEXTS", "URL", "check", "expect", "ran", "version"]

URL = os.environ["TWOSHIFT_URL"]
GRPC = os.environ["TWOSHIFT_GRPC"]
MINILM, SMOLLM = os.environ["MINILM_FOLDER"], os.environ["SMOLLM_FOLDER"]  # for tools that count tokens themselves
FOX = [{"role": "user", "content": "Name the colour of a red fox. One word."}]
TEXTS = ["a red fox", "an old road leads to the sea", "a red fox"]


def version(package: str) -> None:
    """Which release it is."""
    print(f"version\t{importlib.metadata.version(package)}", flush=True)


def check(what: str) -> Callable[[Callable[[], None]], None]:
    """Run what it decorates, at once; a failure is reported and the rest goes on."""

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"fail\t{what}\t{reason[:300]}", flush=True)
        else:
            print(f"pass\t{what}", flush=True)

    return run


def expect(holds: object, shown: object) -> None:
    """Raises with what there is instead."""
    if not holds:
        raise AssertionError(shown)


def ran(command: Sequence[str], timeout_s: float = 400) -> str:
    """What a program prints; raises with the end of it where it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    said = ended.stdout + ended.stderr
    expect(ended.returncode == 0, f"exit {ended.returncode}: {said[-1500:]}")
    return said
