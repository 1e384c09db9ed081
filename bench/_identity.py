"""A model that returns its input: what is left is the server's own time."""

from __future__ import annotations

from typing import Any


class Identity:
    """Rows of numbers, as they came."""

    outputs = ("y",)
    example = {"x": [0.0, 0.25, 0.5, 0.75]}  # noqa: RUF012 - read only

    def load(self) -> None:
        """Nothing to load."""

    def predict(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": batch["x"]}
