"""Figures that were measured of a model's weights, kept under TWOSHIFT_HOME/models/<checksum>/."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["FigureCache"]


class FigureCache:
    """One figure, by what it depends on. One that cannot be read or written is only measured again."""

    def __init__(self, root: Path, checksum: str, key: Sequence[str]) -> None:
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        self._path = root / "models" / checksum.removeprefix("sha256:") / f"parity-{digest}.json"
        self._key = list(key)

    def get(self) -> float | None:
        """The figure; None where there is none."""
        try:
            stored = json.loads(self._path.read_bytes())
            return float(stored["parity"]) if stored["key"] == self._key else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, figure: float) -> None:
        """Store it, whole or not at all."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"key": self._key, "parity": figure}, file)
            Path(name).replace(self._path)
