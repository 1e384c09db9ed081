"""Figures that were measured of a model's weights, kept under TWOSHIFT_HOME/models/<checksum>/."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from twoshift.errors import Broken
from twoshift.runtime.encoder.fields import small_file

__all__ = ["FigureCache"]


class FigureCache:
    """One figure, by what it depends on. One that cannot be read or written is only measured again."""

    def __init__(self, root: Path, checksum: str, key: Sequence[str]) -> None:
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        self._path = root / "models" / checksum.removeprefix("sha256:") / f"parity-{digest}.json"
        self._key = list(key)

    def get(self) -> float | None:
        """The figure; None where there is none, or one that cannot be."""
        try:
            stored = json.loads(small_file(self._path))
            figure = stored["parity"]
            return float(figure) if stored["key"] == self._key and _can_be(figure) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, Broken):
            return None

    def put(self, figure: float) -> None:
        """Store it, whole or not at all."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"key": self._key, "parity": figure}, file)
            Path(name).replace(self._path)


def _can_be(figure: object) -> bool:
    return isinstance(figure, float) and -1.0 <= figure <= 1.0
